// Events: one thread signals an event, and others wait for it, or for several events at once. An event stays signalled
// until clear_event.
//
// An event is a descriptor of 32 bits that programs outside of the library can wait for too. On Linux it is an eventfd,
// for poll() and similar functions. On Windows it is the handle of an event object, for WaitForSingleObject and similar
// functions.
//
// Thread safety: any thread.
#pragma once

#include <span>

namespace kvc {

// Returns -1, with the reason in errno, if the system refuses an event.
int open_event() noexcept;
void close_event(int event) noexcept;

void write_event(int event) noexcept;
void clear_event(int event) noexcept;

// Waits until an event is signalled, for at most most_ms milliseconds if most_ms >= 0. It may also return early.
// Returns whether the first event is signalled. events: at most 64.
bool wait_for_events(std::span<const int> events, int most_ms) noexcept;

}  // namespace kvc

#include "system/wake_event.h"

#include <cerrno>

#include "system/windows/handle.h"

namespace kvc {

int open_event() noexcept {
  const HANDLE event = CreateEventW(nullptr, TRUE, FALSE, nullptr);  // it stays signalled until it is reset
  if (event == nullptr) errno = ENOMEM;
  return event != nullptr ? descriptor_of(event) : -1;
}

void close_event(int event) noexcept { CloseHandle(handle_of(event)); }

void write_event(int event) noexcept { SetEvent(handle_of(event)); }

void clear_event(int event) noexcept { ResetEvent(handle_of(event)); }

bool wait_for_events(std::span<const int> events, int most_ms) noexcept {
  HANDLE handles[MAXIMUM_WAIT_OBJECTS];
  DWORD count = 0;
  for (const int event : events) handles[count++] = handle_of(event);
  // It returns the lowest number of a signalled event.
  const DWORD found =
      WaitForMultipleObjects(count, handles, FALSE, most_ms >= 0 ? static_cast<DWORD>(most_ms) : INFINITE);
  return found == WAIT_OBJECT_0;
}

}  // namespace kvc

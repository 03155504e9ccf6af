// Two clocks, in nanoseconds. Thread safety: any thread.
#pragma once

#include <time.h>

#include <cstdint>

namespace kvc {

// Returns -1 if the system does not have the clock.
inline int64_t read_clock(clockid_t clock) noexcept {
  timespec time;
  if (clock_gettime(clock, &time) != 0) return -1;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Grows all the time. Its zero has no meaning.
inline int64_t steady_ns() noexcept { return read_clock(CLOCK_MONOTONIC); }

// Time since 1970. It may jump when someone sets the clock.
inline int64_t wall_ns() noexcept { return read_clock(CLOCK_REALTIME); }

}  // namespace kvc

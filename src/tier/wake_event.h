// Functions to signal and to clear an eventfd, and a monotonic clock.
//
// Thread safety: any thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>

namespace kvc {

inline int64_t now_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

inline void write_event(int event) noexcept {
  const uint64_t one = 1;
  while (write(event, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

inline void clear_event(int event) noexcept {
  uint64_t count = 0;
  while (read(event, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

}  // namespace kvc

// Functions to signal and to clear an eventfd.
//
// Thread safety: any thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace kvc {

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

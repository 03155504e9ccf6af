// Returns the time of a monotonic clock, in nanoseconds. Thread safety: any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvc {

inline int64_t steady_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace kvc

// The time since 1970. It may jump when the system's clock is set.
//
// Thread safety: any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace kvc {

inline int64_t wall_ns() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace kvc

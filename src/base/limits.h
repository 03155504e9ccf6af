// Limits that several parts check.
#pragma once

#include <cstdint>

namespace kvc {

// The largest number of tokens of a sequence. With this limit, positions and tile indices fit in 32 bits.
constexpr int64_t kMaxLength = int64_t{1} << 30;

}  // namespace kvc

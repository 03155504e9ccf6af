// Limits that several parts check.
#pragma once

#include <cstdint>

namespace kvc {

constexpr int64_t kMaxLength = int64_t{1} << 30;  // tokens of a sequence: positions and tiles fit in 32 bits

}  // namespace kvc

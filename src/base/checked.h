// Overflow-checked 64-bit arithmetic for sizes that come from callers.
#pragma once

#include <cstdint>

namespace kvc {

// Sets *out to a * b (or a + b). Returns false if the result does not fit; then *out is undefined.
inline bool checked_mul(int64_t a, int64_t b, int64_t* out) noexcept { return !__builtin_mul_overflow(a, b, out); }
inline bool checked_add(int64_t a, int64_t b, int64_t* out) noexcept { return !__builtin_add_overflow(a, b, out); }

// ceil(a / b) for a >= 0, b > 0, without overflow.
constexpr int64_t ceil_div(int64_t a, int64_t b) noexcept { return a / b + (a % b != 0); }

}  // namespace kvc

// Element conversions of the tests, written apart from kernels/common/convert.h: by candidates and distances, not by
// bits.
#pragma once

#include <dlpack/dlpack.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace kvc::kernels::test {

enum class Kind { kF32, kF16, kBf16 };

inline const char* name_of(Kind kind) { return kind == Kind::kF32 ? "f32" : kind == Kind::kF16 ? "f16" : "bf16"; }
inline int bytes_of(Kind kind) { return kind == Kind::kF32 ? 4 : 2; }
inline DLDataType dtype_of(Kind kind) {
  if (kind == Kind::kF32) return {kDLFloat, 32, 1};
  if (kind == Kind::kF16) return {kDLFloat, 16, 1};
  return {kDLBfloat, 16, 1};
}

// Value of a 16-bit pattern.
inline double half_value(Kind kind, uint16_t bits) {
  const int mantissa_bits = kind == Kind::kF16 ? 10 : 7, bias = kind == Kind::kF16 ? 15 : 127;
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// The nearest pattern, ties to the even one; not for NaN.
inline uint16_t half_bits(Kind kind, double x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(x);
  uint16_t low = 0, infinity = kind == Kind::kF16 ? 0x7c00 : 0x7f80;
  uint16_t high = infinity;
  while (high - low > 1) {  // the patterns of magnitudes are ordered as their values
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (half_value(kind, middle) <= magnitude ? low : high) = middle;
  }
  // Beyond the largest finite value the next step would be a power of two: that is where infinity begins to be nearer.
  const double upper = high == infinity ? std::ldexp(1.0, kind == Kind::kF16 ? 16 : 128) : half_value(kind, high);
  const double to_low = magnitude - half_value(kind, low), to_high = upper - magnitude;
  const bool up = magnitude == INFINITY || to_high < to_low || (to_high == to_low && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

inline float read_number(Kind kind, const void* p) {
  if (kind == Kind::kF32) {
    float x;
    std::memcpy(&x, p, 4);
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return static_cast<float>(half_value(kind, bits));
}

inline void write_number(Kind kind, void* p, float x) {
  if (kind == Kind::kF32) {
    std::memcpy(p, &x, 4);
    return;
  }
  const uint16_t bits = half_bits(kind, x);
  std::memcpy(p, &bits, 2);
}

inline float rounded(Kind kind, float x) {
  unsigned char bytes[4];
  write_number(kind, bytes, x);
  return read_number(kind, bytes);
}

}  // namespace kvc::kernels::test

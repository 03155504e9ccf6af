// Element conversions for tests, independent of kernels/common/convert.h. They compare candidates by their distances,
// and use no bit operations.
#pragma once

#include <dlpack/dlpack.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

namespace kvc::kernels::test {

enum class Kind { kF32, kF16, kBf16, kE4m3, kE5m2, kI8, kU4, kE2m1, kDsMla };

inline const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i8", "u4", "e2m1", "ds_mla"};
  return kNames[static_cast<int>(kind)];
}
inline bool is_quantised(Kind kind) { return kind >= Kind::kE4m3; }
// Bytes of an element; of 4 bits, of two, which their pools count as one. Rows of kDsMla count as bytes.
inline int bytes_of(Kind kind) { return kind == Kind::kF32 ? 4 : is_quantised(kind) ? 1 : 2; }
inline DLDataType dtype_of(Kind kind) {
  constexpr DLDataType kTypes[] = {{kDLFloat, 32, 1},        {kDLFloat, 16, 1},        {kDLBfloat, 16, 1},
                                   {kDLFloat8_e4m3fn, 8, 1}, {kDLFloat8_e5m2, 8, 1},   {kDLInt, 8, 1},
                                   {kDLUInt, 4, 1},          {kDLFloat4_e2m1fn, 4, 1}, {kDLFloat8_e4m3fn, 8, 1}};
  return kTypes[static_cast<int>(kind)];
}

// Units of a row. Of kE2m1, the scales of blocks of 16 dims follow its elements. Of kDsMla, four scales follow V.
inline int units_of(Kind kind, int dims) {
  if (kind == Kind::kDsMla) return dims > 512 ? 656 : dims + 16;
  return kind == Kind::kU4 ? dims / 2 : kind == Kind::kE2m1 ? dims / 2 + dims / 16 : dims;
}
// Stored with a scale for each token and head.
inline bool has_row_scales(Kind kind) { return kind == Kind::kI8 || kind == Kind::kU4; }

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
  // After the largest finite value the next step would be a power of two. From half of that step on, infinity is
  // nearer.
  const double upper = high == infinity ? std::ldexp(1.0, kind == Kind::kF16 ? 16 : 128) : half_value(kind, high);
  const double to_low = magnitude - half_value(kind, low), to_high = upper - magnitude;
  const bool up = magnitude == INFINITY || to_high < to_low || (to_high == to_low && low % 2 == 1);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

// Value of a byte: of an 8-bit float, or an integer.
inline double byte_value(Kind kind, uint8_t bits) {
  if (kind == Kind::kI8) return static_cast<int8_t>(bits);
  const int mantissa_bits = kind == Kind::kE4m3 ? 3 : 2, bias = kind == Kind::kE4m3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x80 ? -1.0 : 1.0;
  if (kind == Kind::kE4m3 && (bits & 0x7f) == 0x7f) return NAN;
  if (kind == Kind::kE5m2 && exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// The nearest finite byte, ties to the even one; of floats, NaN for NaN.
inline uint8_t nearest_byte(Kind kind, double x) {
  if (kind == Kind::kI8)
    return static_cast<uint8_t>(static_cast<int>(std::nearbyint(std::fmax(-127, std::fmin(127, x)))));
  if (std::isnan(x)) return 0x7f;
  const int largest = kind == Kind::kE4m3 ? 0x7e : 0x7b;
  const double magnitude = std::fmin(std::fabs(x), byte_value(kind, static_cast<uint8_t>(largest)));
  int best = 0;
  for (int bits = 1; bits <= largest; ++bits) {
    const double distance = std::fabs(byte_value(kind, static_cast<uint8_t>(bits)) - magnitude);
    const double known = std::fabs(byte_value(kind, static_cast<uint8_t>(best)) - magnitude);
    if (distance < known || (distance == known && bits % 2 == 0)) best = bits;
  }
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

inline float read_number(Kind kind, const void* p) {
  if (is_quantised(kind)) return static_cast<float>(byte_value(kind, *static_cast<const uint8_t*>(p)));
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
  if (is_quantised(kind)) {
    *static_cast<uint8_t*>(p) = nearest_byte(kind, x);
    return;
  }
  if (kind == Kind::kF32) {
    std::memcpy(p, &x, 4);
    return;
  }
  const uint16_t bits = half_bits(kind, x);
  std::memcpy(p, &bits, 2);
}

// The scale of an int8 row: its largest magnitude / 127, or 1 for a row of zeros.
inline float int8_scale(const float* row, int n) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(row[i]));
  const float scale = largest / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

inline float rounded(Kind kind, float x) {
  unsigned char bytes[4];
  write_number(kind, bytes, x);
  return read_number(kind, bytes);
}

}  // namespace kvc::kernels::test

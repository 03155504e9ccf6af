// Converts one element between float32 and a stored type. Values are rounded to nearest even, subnormals are exact, and
// NaN stays a quiet NaN. A value that is too large becomes an infinity in types of 16 bits. In smaller types it becomes
// the largest finite value, and so does an infinity. These functions define the conversions. SIMD versions must return
// the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlpack/dlpack.h>

#include "kernels/common/annotate.h"

namespace kvc::kernels {

enum class Type : int32_t {
  kF32 = 0,
  kF16 = 1,
  kBf16 = 2,
  kE4m3 = 3,
  kE5m2 = 4,
  kI8 = 5,
  kU4 = 6,
  kE2m1 = 7,
  kBlockRow = 8,  // whole rows with scales of blocks of dims (block_row.h)
  kNone = 9
};

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
// 1 bit of sign, 4 of exponent (bias 7) and 3 of mantissa. It has no infinity. It is NaN if all bits but the sign are 1
// ("e4m3fn"). The largest value is 448.
struct E4m3 {
  uint8_t bits;
};
// The upper byte of a float16. The largest finite value is 57344.
struct E5m2 {
  uint8_t bits;
};
// append writes -127..127. A stored -128 is read as -128.
struct I8 {
  int8_t value;
};
// A level, 0..15, in the low 4 bits.
struct U4 {
  uint8_t bits;
};
// 1 bit of sign, 2 of exponent (bias 1) and 1 of mantissa, in the low 4 bits. It has no infinity and no NaN ("e2m1fn").
// The largest value is 6.
struct E2m1 {
  uint8_t bits;
};

KVC_HOST_DEVICE Type type_of(DLDataType dtype) {
  if (dtype.lanes != 1) return Type::kNone;
  if (dtype.code == kDLFloat && dtype.bits == 32) return Type::kF32;
  if (dtype.code == kDLFloat && dtype.bits == 16) return Type::kF16;
  if (dtype.code == kDLBfloat && dtype.bits == 16) return Type::kBf16;
  if (dtype.code == kDLFloat8_e4m3fn && dtype.bits == 8) return Type::kE4m3;
  if (dtype.code == kDLFloat8_e5m2 && dtype.bits == 8) return Type::kE5m2;
  if (dtype.code == kDLInt && dtype.bits == 8) return Type::kI8;
  if (dtype.code == kDLUInt && dtype.bits == 4) return Type::kU4;
  if (dtype.code == kDLFloat4_e2m1fn && dtype.bits == 4) return Type::kE2m1;
  return Type::kNone;
}

// Whether the type is stored with scales. An element is read as stored * scale. An element of kU4 is read as
// (stored - zero point) * scale.
KVC_HOST_DEVICE bool is_quantised(Type type) { return type >= Type::kE4m3 && type <= Type::kBlockRow; }

// Whether two elements share a byte.
KVC_HOST_DEVICE bool is_packed(Type type) { return type == Type::kU4 || type == Type::kE2m1; }

// Number of neighbouring dims of kE2m1 that share a scale.
constexpr int32_t kBlockDims = 16;

KVC_HOST_DEVICE int32_t element_bits(Type type) {
  return type == Type::kF32 ? 32 : is_packed(type) ? 4 : is_quantised(type) ? 8 : 16;
}

// Returns the bytes of an element of a caller's tensor. A tensor of packed 4-bit elements, or of rows
// of kBlockRow, has bytes as its elements. stored_format.h computes the sizes of stored rows.
KVC_HOST_DEVICE int32_t element_bytes(Type type) { return (element_bits(type) + 7) / 8; }

KVC_HOST_DEVICE uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

KVC_HOST_DEVICE float float_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

KVC_HOST_DEVICE float to_float(float x) { return x; }

KVC_HOST_DEVICE float to_float(Bf16 x) { return float_from_bits(static_cast<uint32_t>(x.bits) << 16); }

KVC_HOST_DEVICE float to_float(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 31u;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return float_from_bits(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return float_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
  return float_from_bits(sign | float_bits(magnitude));
}

KVC_HOST_DEVICE float to_float(E5m2 x) { return to_float(F16{static_cast<uint16_t>(x.bits << 8)}); }

KVC_HOST_DEVICE float to_float(E4m3 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  const uint32_t magnitude = x.bits & 0x7fu;
  if (magnitude == 0x7f) return float_from_bits(sign | 0x7fc00000u);
  if (magnitude >= 8) return float_from_bits(sign | ((magnitude << 20) + (120u << 23)));
  return float_from_bits(sign | float_bits(static_cast<float>(magnitude) * 0.001953125f));  // 2^-9
}

KVC_HOST_DEVICE float to_float(I8 x) { return static_cast<float>(x.value); }

KVC_HOST_DEVICE float to_float(U4 x) { return static_cast<float>(x.bits); }

KVC_HOST_DEVICE float to_float(E2m1 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 8u) << 28, magnitude = x.bits & 7u;
  if (magnitude >= 2) return float_from_bits(sign | ((magnitude << 22) + (126u << 23)));
  return float_from_bits(sign | float_bits(static_cast<float>(magnitude) * 0.5f));
}

KVC_HOST_DEVICE void narrow(float x, float* out) { *out = x; }

KVC_HOST_DEVICE void narrow(float x, Bf16* out) {
  const uint32_t bits = float_bits(x);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out->bits = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

KVC_HOST_DEVICE void narrow(float x, F16* out) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // normal: at least 2^-14
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // subnormal: adding 0.5, whose ulp is 2^-24, rounds to a multiple of 2^-24
    half = float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  }
  out->bits = static_cast<uint16_t>(sign | half);
}

// Returns the bits, without the sign, of a float of 8 or 4 bits. magnitude: the float32 bits of the value without its
// sign. mantissa_bits, bias: of the small format. largest: the float32 bits of its largest finite value. nan: the
// result for NaN.
KVC_HOST_DEVICE uint32_t narrow_magnitude(uint32_t magnitude, uint32_t mantissa_bits, uint32_t bias, uint32_t largest,
                                          uint32_t nan) {
  if (magnitude > 0x7f800000u) return nan;
  if (magnitude > largest) magnitude = largest;
  const uint32_t shift = 23 - mantissa_bits, smallest_normal = (128 - bias) << 23;
  if (magnitude >= smallest_normal) {
    const uint32_t rebased = magnitude - ((127 - bias) << 23);
    return (rebased + (1u << (shift - 1)) - 1 + ((rebased >> shift) & 1u)) >> shift;
  }
  // The ulp of this power of two is the distance between subnormals of the small format. So the addition rounds to a
  // multiple of that distance.
  const uint32_t power = (128 - bias + shift) << 23;
  return float_bits(float_from_bits(magnitude) + float_from_bits(power)) - power;
}

KVC_HOST_DEVICE void narrow(float x, E4m3* out) {
  const uint32_t bits = float_bits(x);
  out->bits =
      static_cast<uint8_t>(((bits >> 24) & 0x80u) | narrow_magnitude(bits & 0x7fffffffu, 3, 7, 0x43e00000u, 0x7f));
}

KVC_HOST_DEVICE void narrow(float x, E5m2* out) {
  const uint32_t bits = float_bits(x);
  out->bits =
      static_cast<uint8_t>(((bits >> 24) & 0x80u) | narrow_magnitude(bits & 0x7fffffffu, 2, 15, 0x47600000u, 0x7e));
}

// x must not be NaN.
KVC_HOST_DEVICE void narrow(float x, E2m1* out) {
  const uint32_t bits = float_bits(x);
  out->bits = static_cast<uint8_t>(((bits >> 28) & 8u) | narrow_magnitude(bits & 0x7fffffffu, 1, 1, 0x40c00000u, 7));
}

// x must not be NaN.
KVC_HOST_DEVICE void narrow(float x, I8* out) {
  const float clamped = x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x;
  const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  out->value = static_cast<int8_t>(static_cast<int32_t>((clamped + magic) - magic));
}

// Loads element `index` of an array, which may have any alignment. In a byte with two elements, the first element has
// the low 4 bits.
KVC_HOST_DEVICE float load_element(Type type, const void* base, int64_t index) {
  if (is_packed(type)) {
    const uint8_t bits = static_cast<const unsigned char*>(base)[index / 2] >> (index % 2 * 4) & 15;
    return type == Type::kU4 ? to_float(U4{bits}) : to_float(E2m1{bits});
  }
  const unsigned char* bytes = static_cast<const unsigned char*>(base) + index * element_bytes(type);
  if (type == Type::kF32) {
    float x;
    memcpy(&x, bytes, sizeof x);
    return x;
  }
  if (type == Type::kE4m3) return to_float(E4m3{*bytes});
  if (type == Type::kE5m2) return to_float(E5m2{*bytes});
  if (type == Type::kI8) return to_float(I8{static_cast<int8_t>(*bytes)});
  uint16_t bits;
  memcpy(&bits, bytes, sizeof bits);
  if (type == Type::kF16) return to_float(F16{bits});
  return to_float(Bf16{bits});
}

template <class T>
KVC_HOST_DEVICE void store_narrowed(void* target, float x) {
  T narrowed;
  narrow(x, &narrowed);
  memcpy(target, &narrowed, sizeof narrowed);
}

KVC_HOST_DEVICE void store_element(Type type, void* base, int64_t index, float x) {
  void* target = static_cast<unsigned char*>(base) + index * element_bytes(type);
  if (type == Type::kF32) store_narrowed<float>(target, x);
  if (type == Type::kF16) store_narrowed<F16>(target, x);
  if (type == Type::kBf16) store_narrowed<Bf16>(target, x);
  if (type == Type::kE4m3) store_narrowed<E4m3>(target, x);
  if (type == Type::kE5m2) store_narrowed<E5m2>(target, x);
  if (type == Type::kI8) store_narrowed<I8>(target, x);
}

// Returns x rounded to `type`, as float32.
KVC_HOST_DEVICE float round_to(Type type, float x) {
  float rounded;
  unsigned char bytes[4] = {};
  store_element(type, bytes, 0, x);
  rounded = load_element(type, bytes, 0);
  return rounded;
}

}  // namespace kvc::kernels

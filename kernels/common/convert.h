// One element between float32, float16 and bfloat16: round to nearest even, subnormals exact, NaN stays (quiet) NaN.
// These are the definition; SIMD versions must agree bit for bit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dlpack/dlpack.h>

#include "kernels/common/annotate.h"

namespace kvc::kernels {

enum class Type : int32_t { kF32 = 0, kF16 = 1, kBf16 = 2, kNone = 3 };

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

KVC_HOST_DEVICE Type type_of(DLDataType dtype) {
  if (dtype.lanes != 1) return Type::kNone;
  if (dtype.code == kDLFloat && dtype.bits == 32) return Type::kF32;
  if (dtype.code == kDLFloat && dtype.bits == 16) return Type::kF16;
  if (dtype.code == kDLBfloat && dtype.bits == 16) return Type::kBf16;
  return Type::kNone;
}

KVC_HOST_DEVICE int32_t type_bytes(Type type) { return type == Type::kF32 ? 4 : 2; }

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

KVC_HOST_DEVICE float widen(float x) { return x; }

KVC_HOST_DEVICE float widen(Bf16 x) { return float_from_bits(static_cast<uint32_t>(x.bits) << 16); }

KVC_HOST_DEVICE float widen(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 31u;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 31) return float_from_bits(sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  if (exponent != 0) return float_from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
  return float_from_bits(sign | float_bits(magnitude));
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
  } else {  // 0.5 has an ulp of 2^-24, that of f16's subnormals: adding it rounds to one
    half = float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  }
  out->bits = static_cast<uint16_t>(sign | half);
}

// Element `index` of an array of any alignment.
KVC_HOST_DEVICE float load_element(Type type, const void* base, int64_t index) {
  const unsigned char* bytes = static_cast<const unsigned char*>(base) + index * type_bytes(type);
  if (type == Type::kF32) {
    float x;
    memcpy(&x, bytes, sizeof x);
    return x;
  }
  uint16_t bits;
  memcpy(&bits, bytes, sizeof bits);
  if (type == Type::kF16) return widen(F16{bits});
  return widen(Bf16{bits});
}

KVC_HOST_DEVICE void store_element(Type type, void* base, int64_t index, float x) {
  unsigned char* bytes = static_cast<unsigned char*>(base) + index * type_bytes(type);
  if (type == Type::kF32) {
    memcpy(bytes, &x, sizeof x);
  } else if (type == Type::kF16) {
    F16 half;
    narrow(x, &half);
    memcpy(bytes, &half.bits, sizeof half.bits);
  } else {
    Bf16 half;
    narrow(x, &half);
    memcpy(bytes, &half.bits, sizeof half.bits);
  }
}

// x as `type` holds it.
KVC_HOST_DEVICE float round_to(Type type, float x) {
  float rounded;
  unsigned char bytes[4];
  store_element(type, bytes, 0, x);
  rounded = load_element(type, bytes, 0);
  return rounded;
}

}  // namespace kvc::kernels

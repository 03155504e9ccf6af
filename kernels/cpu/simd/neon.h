// Defines the functions of the target neon, which needs the NEON of every aarch64 CPU (Armv8.0-A). A vector has 4
// lanes, and there are 32 vector registers. simd/scalar.h says what each function does. Conversions from float32 to
// float16 use the rounding mode of FPCR. Work items run with the default FPCR.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arm_neon.h>

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

using F32 = float32x4_t;
static constexpr int kLanes = 4, kTileRows = 6, kTileVectors = 4, kValueAccumulators = 16;
static constexpr bool kFewTiles = false;

KVC_INLINE F32 zero() { return vdupq_n_f32(0.0f); }
KVC_INLINE F32 set1(float x) { return vdupq_n_f32(x); }
KVC_INLINE F32 lane_index() { return F32{0, 1, 2, 3}; }
KVC_INLINE F32 add(F32 a, F32 b) { return vaddq_f32(a, b); }
KVC_INLINE F32 sub(F32 a, F32 b) { return vsubq_f32(a, b); }
KVC_INLINE F32 mul(F32 a, F32 b) { return vmulq_f32(a, b); }
KVC_INLINE F32 div(F32 a, F32 b) { return vdivq_f32(a, b); }
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return vfmaq_f32(c, a, b); }
KVC_INLINE F32 max(F32 a, F32 b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
KVC_INLINE F32 max_magnitude(F32 a, F32 b) {
  const uint32x4_t magnitude = vbicq_u32(vreinterpretq_u32_f32(b), vdupq_n_u32(0x80000000u));
  return vreinterpretq_f32_u32(vmaxq_u32(vreinterpretq_u32_f32(a), magnitude));
}
KVC_INLINE bool any_greater(F32 a, F32 b) { return vmaxvq_u32(vcgtq_f32(a, b)) != 0; }
KVC_INLINE F32 select_less(F32 a, F32 b, F32 x, F32 y) { return vbslq_f32(vcltq_f32(a, b), x, y); }
KVC_INLINE F32 keep_range(F32 v, F32 index, F32 begin, F32 end) {
  const uint32x4_t seen = vandq_u32(vcgeq_f32(index, begin), vcltq_f32(index, end));
  return vbslq_f32(seen, v, vdupq_n_f32(KVC_NEG_INF));
}
KVC_INLINE float reduce_add(F32 v) { return vaddvq_f32(v); }
KVC_INLINE float reduce_max(F32 v) { return vmaxnmvq_f32(v); }

KVC_INLINE F32 exp2(F32 x) {
  x = vmaxq_f32(x, set1(-127.0f));  // NaN if x is NaN
  const F32 n = vrndnq_f32(x);
  const F32 f = sub(x, n);
  F32 p = fma(set1(KVC_EXP2_C4), f, set1(KVC_EXP2_C3));
  p = fma(p, f, set1(KVC_EXP2_C2));
  p = fma(p, f, set1(KVC_EXP2_C1));
  p = fma(p, f, set1(KVC_EXP2_C0));
  p = fma(p, f, set1(1.0f));
  const int32x4_t exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
  return mul(p, vreinterpretq_f32_s32(exponent));
}

// ---- Memory

KVC_INLINE F32 load(const float* p) { return vld1q_f32(p); }
KVC_INLINE void store(float* p, F32 v) { vst1q_f32(p, v); }
KVC_INLINE F32 convert_halves(F16, uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
KVC_INLINE F32 convert_halves(Bf16, uint16x4_t h) { return vreinterpretq_f32_u32(vshll_n_u16(h, 16)); }
KVC_INLINE F32 load_as(float, const void* p) {
  F32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  uint16x4_t halves;
  memcpy(&halves, p, sizeof halves);
  return convert_halves(T{}, halves);
}
template <class T>
KVC_INLINE F32 load_as_first(T, const void* p, int n) {
  T e[kLanes] = {};
  memcpy(e, p, static_cast<size_t>(n) * sizeof(T));
  return load_as(T{}, e);
}
KVC_INLINE uint16x4_t narrow_to(F16, F32 v) { return vreinterpret_u16_f16(vcvt_f16_f32(v)); }
KVC_INLINE uint16x4_t narrow_to(Bf16, F32 v) {
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  return vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, quiet), 16);
}
KVC_INLINE void store_as(float, void* p, F32 v) { memcpy(p, &v, sizeof v); }
template <class T>
KVC_INLINE void store_as(T, void* p, F32 v) {
  const uint16x4_t halves = narrow_to(T{}, v);
  memcpy(p, &halves, sizeof halves);
}
template <class T>
KVC_INLINE void store_as_first(T, void* p, F32 v, int n) {
  T e[kLanes];
  store_as(T{}, e, v);
  memcpy(p, e, static_cast<size_t>(n) * sizeof(T));
}

using HalfPairs = uint32x4_t;
KVC_INLINE HalfPairs load_pairs(const void* p) {
  HalfPairs v;
  memcpy(&v, p, sizeof v);
  return v;
}
KVC_INLINE HalfPairs load_pairs_first(const void* p, int n) {
  HalfPairs v = vdupq_n_u32(0);
  memcpy(&v, p, static_cast<size_t>(n) * 2);
  return v;
}
KVC_INLINE F32 convert_lower(HalfPairs v) { return vreinterpretq_f32_u32(vshlq_n_u32(v, 16)); }
KVC_INLINE F32 convert_upper(HalfPairs v) { return vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u))); }
KVC_INLINE void zip(F32 even, F32 odd, F32* out) {
  out[0] = vzip1q_f32(even, odd);
  out[1] = vzip2q_f32(even, odd);
}

// ---- 8-bit types: four elements are in the lower half of a vector of bytes.

KVC_INLINE F32 dequantise_bytes(E5m2, uint8x8_t b) { return convert_halves(F16{}, vget_low_u16(vshll_n_u8(b, 8))); }
KVC_INLINE F32 dequantise_bytes(I8, uint8x8_t b) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(b)))));
}
// An E4m3 is converted to a float16 that has the same mantissa, and an exponent that is 8 too small. kE4m3Unit is the
// missing factor. If all bits except the sign are 1, the result is a NaN.
static constexpr float kE4m3Unit = 256.0f;
KVC_INLINE F32 dequantise_bytes(E4m3, uint8x8_t b) {
  const int16x4_t shifted = vshl_n_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(b))), 7);
  const uint16x4_t half = vand_u16(vreinterpret_u16_s16(shifted), vdup_n_u16(0xbf80));
  const uint16x4_t ones = vdup_n_u16(0x3f80);
  const uint16x4_t nan = vand_u16(vceq_u16(vand_u16(half, ones), ones), vdup_n_u16(0x4000));
  return convert_halves(F16{}, vorr_u16(half, nan));
}

// This is the vector form of narrow_magnitude in kernels/common/convert.h.
template <int kMantissaBits, int kBias>
KVC_INLINE uint8x8_t narrow_bytes(F32 v, uint32_t largest, uint32_t nan_bits) {
  constexpr int kShift = 23 - kMantissaBits;
  constexpr uint32_t kSmallestNormal = static_cast<uint32_t>(128 - kBias) << 23;
  const uint32x4_t bits = vreinterpretq_u32_f32(v);
  const uint32x4_t magnitude = vbicq_u32(bits, vdupq_n_u32(0x80000000u));
  const uint32x4_t clamped = vminq_u32(magnitude, vdupq_n_u32(largest));
  const uint32x4_t rebased = vsubq_u32(clamped, vdupq_n_u32(static_cast<uint32_t>(127 - kBias) << 23));
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(rebased, kShift), vdupq_n_u32(1));
  const uint32x4_t rounded = vaddq_u32(rebased, vaddq_u32(odd, vdupq_n_u32((1u << (kShift - 1)) - 1)));
  const uint32x4_t power = vdupq_n_u32(static_cast<uint32_t>(128 - kBias + kShift) << 23);
  const F32 sum = add(vreinterpretq_f32_u32(clamped), vreinterpretq_f32_u32(power));
  const uint32x4_t subnormal = vsubq_u32(vreinterpretq_u32_f32(sum), power);
  const uint32x4_t normal = vcgeq_u32(clamped, vdupq_n_u32(kSmallestNormal));
  const uint32x4_t number = vbslq_u32(normal, vshrq_n_u32(rounded, kShift), subnormal);
  const uint32x4_t narrowed = vbslq_u32(vceqq_f32(v, v), number, vdupq_n_u32(nan_bits));
  const uint32x4_t sign = vandq_u32(vshrq_n_u32(bits, 24), vdupq_n_u32(0x80));
  const uint16x4_t words = vmovn_u32(vorrq_u32(narrowed, sign));
  return vmovn_u16(vcombine_u16(words, words));
}
KVC_INLINE uint8x8_t narrow_to_bytes(E4m3, F32 v) { return narrow_bytes<3, 7>(v, 0x43e00000u, 0x7f); }
KVC_INLINE uint8x8_t narrow_to_bytes(E5m2, F32 v) { return narrow_bytes<2, 15>(v, 0x47600000u, 0x7e); }
KVC_INLINE uint8x8_t narrow_to_bytes(I8, F32 v) {
  const int16x4_t words = vmovn_s32(vcvtnq_s32_f32(vminq_f32(vmaxq_f32(v, set1(-127.0f)), set1(127.0f))));
  return vreinterpret_u8_s8(vmovn_s16(vcombine_s16(words, words)));
}

// Loads n bytes, 1 <= n <= kLanes.
KVC_INLINE uint8x8_t load_first_bytes(const void* p, int n) {
  uint32_t bytes = 0;
  memcpy(&bytes, p, static_cast<size_t>(n));
  return vreinterpret_u8_u32(vdup_n_u32(bytes));
}
KVC_INLINE F32 load_as(E4m3 t, const void* p) { return dequantise_bytes(t, load_first_bytes(p, kLanes)); }
KVC_INLINE F32 load_as(E5m2 t, const void* p) { return dequantise_bytes(t, load_first_bytes(p, kLanes)); }
KVC_INLINE F32 load_as(I8 t, const void* p) { return dequantise_bytes(t, load_first_bytes(p, kLanes)); }
KVC_INLINE F32 load_as_first(E4m3 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
KVC_INLINE F32 load_as_first(E5m2 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
KVC_INLINE F32 load_as_first(I8 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
// Stores n elements, 1 <= n <= kLanes.
template <class T>
KVC_INLINE void store_bytes(T t, void* p, F32 v, int n) {
  const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(narrow_to_bytes(t, v)), 0);
  memcpy(p, &bytes, static_cast<size_t>(n));
}

// Loads and converts two vectors.
template <class T>
KVC_INLINE void load_two_as(T t, const void* p, F32* out) {
  out[0] = load_as(t, p);
  out[1] = load_as(t, static_cast<const T*>(p) + kLanes);
}

// ---- Across lanes

KVC_INLINE F32 sum_each(const F32* v) { return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])); }

template <int kStride>
KVC_INLINE F32 max_by_stride(F32 v) {
  if constexpr (kStride <= 2) v = max(v, vextq_f32(v, v, 2));
  if constexpr (kStride <= 1) v = max(v, vrev64q_f32(v));
  return v;
}

template <int kRows>
KVC_INLINE F32 load_repeated(const float* p) {
  if constexpr (kRows == 1) return load(p);
  if constexpr (kRows == 2) return vzip1q_f32(load(p), load(p));
  return vld1q_dup_f32(p);
}

KVC_INLINE void transpose(F32* r) {
  const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
  const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
  const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
  const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
  r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
  r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
  r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
  r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

}  // namespace kvc::kernels::KVC_TARGET

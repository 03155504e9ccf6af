// Defines the functions of the target avx2, which needs AVX2, FMA and F16C. A vector has 8 lanes, and there are 16
// vector registers. simd/scalar.h says what each function does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

using F32 = __m256;
static constexpr int kLanes = 8, kTileRows = 6, kTileVectors = 2, kValueAccumulators = 8;
static constexpr bool kFewTiles = false;

KVC_INLINE F32 zero() { return _mm256_setzero_ps(); }
KVC_INLINE F32 set1(float x) { return _mm256_set1_ps(x); }
KVC_INLINE F32 lane_index() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
KVC_INLINE F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
KVC_INLINE F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
KVC_INLINE F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
KVC_INLINE F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
KVC_INLINE F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
KVC_INLINE F32 max_magnitude(F32 a, F32 b) {
  const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
  return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(a), magnitude));
}
KVC_INLINE bool any_greater(F32 a, F32 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }
KVC_INLINE F32 select_less(F32 a, F32 b, F32 x, F32 y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
KVC_INLINE F32 keep_range(F32 v, F32 index, F32 begin, F32 end) {
  const F32 seen = _mm256_and_ps(_mm256_cmp_ps(index, begin, _CMP_GE_OQ), _mm256_cmp_ps(index, end, _CMP_LT_OQ));
  return _mm256_blendv_ps(_mm256_set1_ps(KVC_NEG_INF), v, seen);
}
KVC_INLINE float reduce_add(F32 v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
KVC_INLINE float reduce_max(F32 v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

KVC_INLINE F32 exp2(F32 x) {
  x = _mm256_max_ps(set1(-127.0f), x);
  const F32 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const F32 f = sub(x, n);
  F32 p = fma(set1(KVC_EXP2_C4), f, set1(KVC_EXP2_C3));
  p = fma(p, f, set1(KVC_EXP2_C2));
  p = fma(p, f, set1(KVC_EXP2_C1));
  p = fma(p, f, set1(KVC_EXP2_C0));
  p = fma(p, f, set1(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return mul(p, _mm256_castsi256_ps(exponent));
}

// ---- Memory

KVC_INLINE F32 load(const float* p) { return _mm256_loadu_ps(p); }
KVC_INLINE void store(float* p, F32 v) { _mm256_storeu_ps(p, v); }
KVC_INLINE F32 convert_halves(F16, __m128i h) { return _mm256_cvtph_ps(h); }
KVC_INLINE F32 convert_halves(Bf16, __m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
KVC_INLINE F32 load_as(float, const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  return convert_halves(T{}, _mm_loadu_si128(static_cast<const __m128i*>(p)));
}
template <class T>
KVC_INLINE F32 load_as_first(T, const void* p, int n) {
  alignas(32) T e[kLanes] = {};
  memcpy(e, p, static_cast<size_t>(n) * sizeof(T));
  return load_as(T{}, e);
}
KVC_INLINE __m128i narrow_to(F16, F32 v) { return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
KVC_INLINE __m128i narrow_to(Bf16, F32 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}
KVC_INLINE void store_as(float, void* p, F32 v) { _mm256_storeu_ps(static_cast<float*>(p), v); }
template <class T>
KVC_INLINE void store_as(T, void* p, F32 v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), narrow_to(T{}, v));
}
template <class T>
KVC_INLINE void store_as_first(T, void* p, F32 v, int n) {
  alignas(32) T e[kLanes];
  store_as(T{}, e, v);
  memcpy(p, e, static_cast<size_t>(n) * sizeof(T));
}

using HalfPairs = __m256i;
KVC_INLINE HalfPairs load_pairs(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
KVC_INLINE HalfPairs load_pairs_first(const void* p, int n) {
  alignas(32) uint16_t e[2 * kLanes] = {};
  memcpy(e, p, static_cast<size_t>(n) * 2);
  return load_pairs(e);
}
KVC_INLINE F32 convert_lower(HalfPairs v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
KVC_INLINE F32 convert_upper(HalfPairs v) {
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(INT32_MIN >> 15)));
}
KVC_INLINE void zip(F32 even, F32 odd, F32* out) {
  const F32 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
  out[0] = _mm256_permute2f128_ps(low, high, 0x20);
  out[1] = _mm256_permute2f128_ps(low, high, 0x31);
}

// ---- 8-bit types

KVC_INLINE F32 dequantise_bytes(E5m2, __m128i b) { return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(b), 8)); }
KVC_INLINE F32 dequantise_bytes(I8, __m128i b) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)); }
// An E4m3 is converted to a float16 that has the same mantissa, and an exponent that is 8 too small. kE4m3Unit is the
// missing factor. If all bits except the sign are 1, the result is a NaN.
static constexpr float kE4m3Unit = 256.0f;
KVC_INLINE F32 dequantise_bytes(E4m3, __m128i b) {
  const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(b), 7);
  const __m128i half = _mm_and_si128(shifted, _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  const __m128i ones = _mm_set1_epi16(0x3f80);
  const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(_mm_and_si128(half, ones), ones), _mm_set1_epi16(0x4000));
  return _mm256_cvtph_ps(_mm_or_si128(half, nan));
}

// This is the vector form of narrow_magnitude in kernels/common/convert.h. The sign bit of a magnitude is 0, so
// comparisons as signed numbers are correct.
template <int kMantissaBits, int kBias>
KVC_INLINE __m128i narrow_bytes(F32 v, uint32_t largest, int nan_bits) {
  constexpr int kShift = 23 - kMantissaBits;
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  const __m256i clamped = _mm256_min_epu32(magnitude, _mm256_set1_epi32(static_cast<int>(largest)));
  const __m256i normal = _mm256_cmpgt_epi32(clamped, _mm256_set1_epi32(((128 - kBias) << 23) - 1));
  const __m256i rebased = _mm256_sub_epi32(clamped, _mm256_set1_epi32((127 - kBias) << 23));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(rebased, kShift), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(rebased, _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (kShift - 1)) - 1)));
  const __m256i power = _mm256_set1_epi32((128 - kBias + kShift) << 23);
  const F32 sum = add(_mm256_castsi256_ps(clamped), _mm256_castsi256_ps(power));
  const __m256i subnormal = _mm256_sub_epi32(_mm256_castps_si256(sum), power);
  __m256i narrowed = _mm256_blendv_epi8(subnormal, _mm256_srli_epi32(rounded, kShift), normal);
  narrowed = _mm256_blendv_epi8(narrowed, _mm256_set1_epi32(nan_bits), nan);
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
  narrowed = _mm256_or_si256(narrowed, sign);
  const __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(narrowed), _mm256_extracti128_si256(narrowed, 1));
  return _mm_packus_epi16(words, words);
}
KVC_INLINE __m128i narrow_to_bytes(E4m3, F32 v) { return narrow_bytes<3, 7>(v, 0x43e00000u, 0x7f); }
KVC_INLINE __m128i narrow_to_bytes(E5m2, F32 v) { return narrow_bytes<2, 15>(v, 0x47600000u, 0x7e); }
KVC_INLINE __m128i narrow_to_bytes(I8, F32 v) {
  const __m256i whole = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(v, set1(-127.0f)), set1(127.0f)));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  return _mm_packs_epi16(words, words);
}

KVC_INLINE F32 load_as(E4m3 t, const void* p) {
  return dequantise_bytes(t, _mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
KVC_INLINE F32 load_as(E5m2 t, const void* p) {
  return dequantise_bytes(t, _mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
KVC_INLINE F32 load_as(I8 t, const void* p) {
  return dequantise_bytes(t, _mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
KVC_INLINE __m128i load_first_bytes(const void* p, int n) {
  int64_t bytes = 0;
  memcpy(&bytes, p, static_cast<size_t>(n));
  return _mm_cvtsi64_si128(bytes);
}
KVC_INLINE F32 load_as_first(E4m3 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
KVC_INLINE F32 load_as_first(E5m2 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
KVC_INLINE F32 load_as_first(I8 t, const void* p, int n) { return dequantise_bytes(t, load_first_bytes(p, n)); }
// Stores n elements, 1 <= n <= kLanes.
template <class T>
KVC_INLINE void store_bytes(T t, void* p, F32 v, int n) {
  const int64_t bytes = _mm_cvtsi128_si64(narrow_to_bytes(t, v));
  memcpy(p, &bytes, static_cast<size_t>(n));
}

// load_two_as loads and converts two vectors. All operations except the last conversion work on both vectors at once.
KVC_INLINE void convert_two_halves(__m256i halves, F32* out) {
  out[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  out[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
KVC_INLINE void load_two_as(E5m2, const void* p, F32* out) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  convert_two_halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8), out);
}
// Converts like dequantise_bytes. Adding the lowest bit of the mantissa carries into the highest bit of the exponent
// only for a NaN.
KVC_INLINE void load_two_as(E4m3, const void* p, F32* out) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i halves = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  const __m256i carried = _mm256_add_epi16(halves, _mm256_set1_epi16(0x0080));
  convert_two_halves(_mm256_or_si256(halves, _mm256_and_si256(carried, _mm256_set1_epi16(0x4000))), out);
}

// ---- Across lanes

KVC_INLINE F32 sum_each(const F32* v) {
  F32 z[4];
  KVC_UNROLL for (int i = 0; i < 4; ++i) {
    z[i] = add(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  }
  const F32 a = add(_mm256_unpacklo_ps(z[0], z[1]), _mm256_unpackhi_ps(z[0], z[1]));
  const F32 b = add(_mm256_unpacklo_ps(z[2], z[3]), _mm256_unpackhi_ps(z[2], z[3]));
  return add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}

template <int kStride>
KVC_INLINE F32 max_by_stride(F32 v) {
  if constexpr (kStride <= 4) v = max(v, _mm256_permute2f128_ps(v, v, 0x01));
  if constexpr (kStride <= 2) v = max(v, _mm256_permute_ps(v, 0x4e));
  if constexpr (kStride <= 1) v = max(v, _mm256_permute_ps(v, 0xb1));
  return v;
}

template <int kRows>
KVC_INLINE F32 load_repeated(const float* p) {
  if constexpr (kRows == 1) return load(p);
  const __m256i index =
      _mm256_setr_epi32(0, 1 / kRows, 2 / kRows, 3 / kRows, 4 / kRows, 5 / kRows, 6 / kRows, 7 / kRows);
  return _mm256_permutevar8x32_ps(load(p), index);
}

KVC_INLINE void transpose(F32* r) {
  F32 t[8];
  KVC_UNROLL for (int i = 0; i < 8; i += 4) {
    const F32 a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
    const F32 c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  KVC_UNROLL for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

}  // namespace kvc::kernels::KVC_TARGET

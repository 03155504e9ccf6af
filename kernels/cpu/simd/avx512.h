// Defines the functions of the target avx512, which needs AVX-512 F, BW, DQ and VL. A vector has 16 lanes, and there
// are 32 vector registers. simd/scalar.h says what each function does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

using F32 = __m512;
static constexpr int kLanes = 16, kTileRows = 6, kTileVectors = 4, kValueAccumulators = 16;
static constexpr bool kFewTiles = false;

KVC_INLINE F32 zero() { return _mm512_setzero_ps(); }
KVC_INLINE F32 set1(float x) { return _mm512_set1_ps(x); }
KVC_INLINE F32 lane_index() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
KVC_INLINE F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
KVC_INLINE F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
KVC_INLINE F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
KVC_INLINE F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
KVC_INLINE F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
KVC_INLINE F32 max_magnitude(F32 a, F32 b) {
  const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(b), _mm512_set1_epi32(0x7fffffff));
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), magnitude));
}
KVC_INLINE bool any_greater(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
KVC_INLINE F32 select_less(F32 a, F32 b, F32 x, F32 y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
KVC_INLINE F32 keep_range(F32 v, F32 index, F32 begin, F32 end) {
  const __mmask16 seen = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(index, begin, _CMP_GE_OQ), index, end, _CMP_LT_OQ);
  return _mm512_mask_blend_ps(seen, _mm512_set1_ps(KVC_NEG_INF), v);
}
KVC_INLINE float reduce_add(F32 v) { return _mm512_reduce_add_ps(v); }
KVC_INLINE float reduce_max(F32 v) { return _mm512_reduce_max_ps(v); }

KVC_INLINE F32 exp2(F32 x) {
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.5f), _CMP_NLT_UQ);
  const F32 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);  // x - n, exact
  const F32 n = _mm512_sub_ps(x, f);
  F32 p = fma(set1(KVC_EXP2_C4), f, set1(KVC_EXP2_C3));
  p = fma(p, f, set1(KVC_EXP2_C2));
  p = fma(p, f, set1(KVC_EXP2_C1));
  p = fma(p, f, set1(KVC_EXP2_C0));
  p = fma(p, f, set1(1.0f));
  return _mm512_maskz_scalef_ps(normal, p, n);
}

// ---- Memory

KVC_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
KVC_INLINE __mmask32 first_halves(int n) { return static_cast<__mmask32>((uint64_t{1} << n) - 1u); }
KVC_INLINE F32 load(const float* p) { return _mm512_loadu_ps(p); }
KVC_INLINE void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
KVC_INLINE F32 convert_halves(F16, __m256i h) { return _mm512_cvtph_ps(h); }
KVC_INLINE F32 convert_halves(Bf16, __m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
KVC_INLINE F32 load_as(float, const void* p) { return _mm512_loadu_ps(p); }
KVC_INLINE F32 load_as_first(float, const void* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  return convert_halves(T{}, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
template <class T>
KVC_INLINE F32 load_as_first(T, const void* p, int n) {
  return convert_halves(T{}, _mm256_maskz_loadu_epi16(first_lanes(n), p));
}
KVC_INLINE __m256i narrow_to(F16, F32 v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
KVC_INLINE __m256i narrow_to(Bf16, F32 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
KVC_INLINE void store_as(float, void* p, F32 v) { _mm512_storeu_ps(p, v); }
KVC_INLINE void store_as_first(float, void* p, F32 v, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), v); }
template <class T>
KVC_INLINE void store_as(T, void* p, F32 v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), narrow_to(T{}, v));
}
template <class T>
KVC_INLINE void store_as_first(T, void* p, F32 v, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_to(T{}, v));
}

using HalfPairs = __m512i;
KVC_INLINE HalfPairs load_pairs(const void* p) { return _mm512_loadu_si512(p); }
KVC_INLINE HalfPairs load_pairs_first(const void* p, int n) { return _mm512_maskz_loadu_epi16(first_halves(n), p); }
KVC_INLINE F32 convert_lower(HalfPairs v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
KVC_INLINE F32 convert_upper(HalfPairs v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(INT32_MIN >> 15)));
}
KVC_INLINE void zip(F32 even, F32 odd, F32* out) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  out[0] = _mm512_permutex2var_ps(even, low, odd);
  out[1] = _mm512_permutex2var_ps(even, high, odd);
}

// ---- 8-bit types

// Both float8 types are converted by way of float16. An E5m2 is the upper byte of a float16. An E4m3 is shifted, so
// that its mantissa is in the upper bits of the mantissa of the float16. The exponent of the float16 is then 8 too
// small, so the result must be multiplied by kE4m3Unit. After the shift, bit 14 is a copy of the sign. This bit must
// become 1 if all bits of the element except its sign are 1 (NaN), and 0 otherwise. An addition computes this bit,
// because the carry of the addition reaches bit 14 only for NaN.
static constexpr float kE4m3Unit = 256.0f;
static constexpr int kXorMasked = 0x78;  // a ^ (b & c)
KVC_INLINE __m256i dequantise_to_halves(E5m2, __m128i b) { return _mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8); }
KVC_INLINE __m512i dequantise_to_halves(E5m2, __m256i b) { return _mm512_slli_epi16(_mm512_cvtepu8_epi16(b), 8); }
KVC_INLINE __m256i dequantise_to_halves(E4m3, __m128i b) {
  const __m256i bits = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
  const __m256i carried = _mm256_add_epi16(bits, _mm256_set1_epi16(0x80));
  return _mm256_ternarylogic_epi32(bits, carried, _mm256_set1_epi16(0x4000), kXorMasked);
}
KVC_INLINE __m512i dequantise_to_halves(E4m3, __m256i b) {
  const __m512i bits = _mm512_slli_epi16(_mm512_cvtepi8_epi16(b), 7);
  const __m512i carried = _mm512_add_epi16(bits, _mm512_set1_epi16(0x80));
  return _mm512_ternarylogic_epi32(bits, carried, _mm512_set1_epi16(0x4000), kXorMasked);
}
template <class T>
KVC_INLINE F32 dequantise_bytes(T t, __m128i b) {
  return _mm512_cvtph_ps(dequantise_to_halves(t, b));
}
KVC_INLINE F32 dequantise_bytes(I8, __m128i b) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b)); }
// Loads and converts two vectors.
template <class T>
KVC_INLINE void load_two_as(T t, const void* p, F32* out) {
  const __m512i halves = dequantise_to_halves(t, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
  out[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  out[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

// This is the vector form of narrow_magnitude in kernels/common/convert.h.
template <int kMantissaBits, int kBias>
KVC_INLINE __m128i narrow_bytes(F32 v, uint32_t largest, int nan_bits) {
  constexpr int kShift = 23 - kMantissaBits;
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
  const __m512i clamped = _mm512_min_epu32(magnitude, _mm512_set1_epi32(static_cast<int>(largest)));
  const __mmask16 normal = _mm512_cmpge_epu32_mask(clamped, _mm512_set1_epi32((128 - kBias) << 23));
  const __m512i rebased = _mm512_sub_epi32(clamped, _mm512_set1_epi32((127 - kBias) << 23));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(rebased, kShift), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(rebased, _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (kShift - 1)) - 1)));
  const __m512i power = _mm512_set1_epi32((128 - kBias + kShift) << 23);
  const F32 sum = add(_mm512_castsi512_ps(clamped), _mm512_castsi512_ps(power));
  const __m512i subnormal = _mm512_sub_epi32(_mm512_castps_si512(sum), power);
  __m512i narrowed = _mm512_mask_srli_epi32(subnormal, normal, rounded, kShift);
  narrowed = _mm512_mask_mov_epi32(narrowed, nan, _mm512_set1_epi32(nan_bits));
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80));
  return _mm512_cvtepi32_epi8(_mm512_or_si512(narrowed, sign));
}
KVC_INLINE __m128i narrow_to_bytes(E4m3, F32 v) { return narrow_bytes<3, 7>(v, 0x43e00000u, 0x7f); }
KVC_INLINE __m128i narrow_to_bytes(E5m2, F32 v) { return narrow_bytes<2, 15>(v, 0x47600000u, 0x7e); }
KVC_INLINE __m128i narrow_to_bytes(I8, F32 v) {
  const F32 clamped = _mm512_min_ps(_mm512_max_ps(v, set1(-127.0f)), set1(127.0f));
  return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(clamped));
}

KVC_INLINE F32 load_as(E4m3 t, const void* p) {
  return dequantise_bytes(t, _mm_loadu_si128(static_cast<const __m128i*>(p)));
}
KVC_INLINE F32 load_as(E5m2 t, const void* p) {
  return dequantise_bytes(t, _mm_loadu_si128(static_cast<const __m128i*>(p)));
}
KVC_INLINE F32 load_as(I8 t, const void* p) {
  return dequantise_bytes(t, _mm_loadu_si128(static_cast<const __m128i*>(p)));
}
KVC_INLINE F32 load_as_first(E4m3 t, const void* p, int n) {
  return dequantise_bytes(t, _mm_maskz_loadu_epi8(first_lanes(n), p));
}
KVC_INLINE F32 load_as_first(E5m2 t, const void* p, int n) {
  return dequantise_bytes(t, _mm_maskz_loadu_epi8(first_lanes(n), p));
}
KVC_INLINE F32 load_as_first(I8 t, const void* p, int n) {
  return dequantise_bytes(t, _mm_maskz_loadu_epi8(first_lanes(n), p));
}
// Stores n elements, 1 <= n <= kLanes.
template <class T>
KVC_INLINE void store_bytes(T t, void* p, F32 v, int n) {
  _mm_mask_storeu_epi8(p, first_lanes(n), narrow_to_bytes(t, v));
}

// ---- Across lanes

KVC_INLINE F32 add_halves(F32 a, F32 b) {
  return add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
KVC_INLINE F32 add_quarters(F32 a, F32 b) {
  return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

KVC_INLINE F32 sum_each(const F32* v) {
  F32 z[4];
  KVC_UNROLL for (int i = 0; i < 4; ++i) {
    z[i] = add_quarters(add_halves(v[i], v[i + 4]), add_halves(v[i + 8], v[i + 12]));
  }
  const F32 a = add(_mm512_unpacklo_ps(z[0], z[1]), _mm512_unpackhi_ps(z[0], z[1]));
  const F32 b = add(_mm512_unpacklo_ps(z[2], z[3]), _mm512_unpackhi_ps(z[2], z[3]));
  return add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

template <int kStride>
KVC_INLINE F32 max_by_stride(F32 v) {
  if constexpr (kStride <= 8) v = max(v, _mm512_shuffle_f32x4(v, v, 0x4e));
  if constexpr (kStride <= 4) v = max(v, _mm512_shuffle_f32x4(v, v, 0xb1));
  if constexpr (kStride <= 2) v = max(v, _mm512_permute_ps(v, 0x4e));
  if constexpr (kStride <= 1) v = max(v, _mm512_permute_ps(v, 0xb1));
  return v;
}

template <int kRows>
KVC_INLINE F32 load_repeated(const float* p) {
  if constexpr (kRows == 1) return load(p);
  const __m512i index =
      _mm512_setr_epi32(0, 1 / kRows, 2 / kRows, 3 / kRows, 4 / kRows, 5 / kRows, 6 / kRows, 7 / kRows, 8 / kRows,
                        9 / kRows, 10 / kRows, 11 / kRows, 12 / kRows, 13 / kRows, 14 / kRows, 15 / kRows);
  return _mm512_permutexvar_ps(index, load(p));
}

KVC_INLINE void transpose(F32* r) {
  F32 t[16];
  KVC_UNROLL for (int i = 0; i < 16; i += 4) {
    const F32 a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
    const F32 c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  KVC_UNROLL for (int i = 0; i < 4; ++i) {
    const F32 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const F32 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

}  // namespace kvc::kernels::KVC_TARGET

// AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers. See simd/scalar.h for what each function means.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

using F32 = __m512;
static constexpr int kLanes = 16, kTileRows = 6, kTileVectors = 4, kValueAccumulators = 16;

KVC_INLINE F32 zero() { return _mm512_setzero_ps(); }
KVC_INLINE F32 set1(float x) { return _mm512_set1_ps(x); }
KVC_INLINE F32 lane_index() { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
KVC_INLINE F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
KVC_INLINE F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
KVC_INLINE F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
KVC_INLINE F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
KVC_INLINE F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
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
  x = _mm512_max_ps(_mm512_set1_ps(-127.0f), x);
  const F32 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const F32 f = _mm512_sub_ps(x, n);
  F32 p = fma(set1(KVC_EXP2_C4), f, set1(KVC_EXP2_C3));
  p = fma(p, f, set1(KVC_EXP2_C2));
  p = fma(p, f, set1(KVC_EXP2_C1));
  p = fma(p, f, set1(KVC_EXP2_C0));
  p = fma(p, f, set1(1.0f));
  const __mmask16 normal = _mm512_cmp_ps_mask(n, _mm512_set1_ps(-127.0f), _CMP_NEQ_UQ);
  return _mm512_maskz_scalef_ps(normal, p, n);
}

// ---- Memory

KVC_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
KVC_INLINE __mmask32 first_halves(int n) { return static_cast<__mmask32>((uint64_t{1} << n) - 1u); }
KVC_INLINE F32 load(const float* p) { return _mm512_loadu_ps(p); }
KVC_INLINE void store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
KVC_INLINE F32 widen_halves(F16, __m256i h) { return _mm512_cvtph_ps(h); }
KVC_INLINE F32 widen_halves(Bf16, __m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
KVC_INLINE F32 load_as(float, const void* p) { return _mm512_loadu_ps(p); }
KVC_INLINE F32 load_as_first(float, const void* p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  return widen_halves(T{}, _mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
template <class T>
KVC_INLINE F32 load_as_first(T, const void* p, int n) {
  return widen_halves(T{}, _mm256_maskz_loadu_epi16(first_lanes(n), p));
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

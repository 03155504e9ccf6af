// AVX2 with FMA and F16C: 8 lanes, 16 registers. See simd/scalar.h for what each function means.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <immintrin.h>

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

using F32 = __m256;
static constexpr int kLanes = 8, kTileRows = 6, kTileVectors = 2, kValueAccumulators = 8;

KVC_INLINE F32 zero() { return _mm256_setzero_ps(); }
KVC_INLINE F32 set1(float x) { return _mm256_set1_ps(x); }
KVC_INLINE F32 lane_index() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }
KVC_INLINE F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
KVC_INLINE F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
KVC_INLINE F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
KVC_INLINE F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
KVC_INLINE F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
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
KVC_INLINE F32 widen_halves(F16, __m128i h) { return _mm256_cvtph_ps(h); }
KVC_INLINE F32 widen_halves(Bf16, __m128i h) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
KVC_INLINE F32 load_as(float, const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  return widen_halves(T{}, _mm_loadu_si128(static_cast<const __m128i*>(p)));
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

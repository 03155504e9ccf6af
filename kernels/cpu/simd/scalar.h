// Defines the functions of the portable target, scalar. A vector is a compiler vector of four lanes, which becomes
// SSE2, NEON or plain code. The comments of this file say what each function does. simd/avx2.h, simd/avx512.h and
// simd/neon.h define the same functions for other SIMD targets.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

typedef float F32 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(16)));

// The register tile of the panel kernel has kTileRows rows of kTileVectors * kLanes floats. The decode kernel keeps
// kValueAccumulators vectors of o in registers.
static constexpr int kLanes = 4, kTileRows = 4, kTileVectors = 2, kValueAccumulators = 8;
static constexpr bool kFewTiles = true;

KVC_INLINE F32 zero() { return F32{}; }
KVC_INLINE F32 set1(float x) { return F32{x, x, x, x}; }
KVC_INLINE F32 lane_index() { return F32{0, 1, 2, 3}; }
KVC_INLINE F32 add(F32 a, F32 b) { return a + b; }
KVC_INLINE F32 sub(F32 a, F32 b) { return a - b; }
KVC_INLINE F32 mul(F32 a, F32 b) { return a * b; }
KVC_INLINE F32 div(F32 a, F32 b) { return a / b; }
// Returns a * b + c. Targets with a fused operation round the result once.
KVC_INLINE F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }
// Returns the larger value, or b if one of them is NaN.
KVC_INLINE F32 max(F32 a, F32 b) { return a > b ? a : b; }
// Returns the larger of a and |b|, compared as bits. NaN counts as the largest value, so the maximum over several calls
// does not depend on the order of the calls. a must not be negative.
KVC_INLINE F32 max_magnitude(F32 a, F32 b) {
  I32 x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  y &= 0x7fffffff;
  x = x > y ? x : y;
  memcpy(&a, &x, sizeof a);
  return a;
}
KVC_INLINE bool any_greater(F32 a, F32 b) {
  const I32 greater = a > b;
  return (greater[0] | greater[1] | greater[2] | greater[3]) != 0;
}
// Returns x where a < b, and y elsewhere, also where a or b is NaN.
KVC_INLINE F32 select_less(F32 a, F32 b, F32 x, F32 y) {
  const I32 less = a < b;
  return less ? x : y;
}
// Keeps the lanes of v whose index is in [begin, end), and sets the others to -inf, even if they are NaN.
KVC_INLINE F32 keep_range(F32 v, F32 index, F32 begin, F32 end) {
  const I32 seen = (index >= begin) & (index < end);
  return seen ? v : set1(KVC_NEG_INF);
}
KVC_INLINE float reduce_add(F32 v) { return (v[0] + v[2]) + (v[1] + v[3]); }
KVC_INLINE float reduce_max(F32 v) {
  const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}

// Returns 2^x for x up to about 8 (kMaxRise in attend/panel_softmax.h). The relative error is at most about 1e-7. The
// result is exactly 1 if x is 0, exactly 0 if x is below -126.5, and NaN if x is NaN.
KVC_INLINE F32 exp2(F32 x) {
  x = max(set1(-127.0f), x);
  const F32 magic = set1(0x1.8p23f);  // adding it rounds to an integer
  const F32 shifted = x + magic;
  const F32 f = x - (shifted - magic);
  F32 p = fma(set1(KVC_EXP2_C4), f, set1(KVC_EXP2_C3));
  p = fma(p, f, set1(KVC_EXP2_C2));
  p = fma(p, f, set1(KVC_EXP2_C1));
  p = fma(p, f, set1(KVC_EXP2_C0));
  p = fma(p, f, set1(1.0f));
  typedef uint32_t U32 __attribute__((vector_size(16)));
  U32 bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127u) << 23;
  F32 scale;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale;
}

// ---- Memory, with any alignment. load_as(T{}, p) converts elements of type T to float32. Functions with _first access
// only the first n elements, n <= kLanes. Their loads set the other lanes to 0.

KVC_INLINE F32 load(const float* p) {
  F32 v;
  memcpy(&v, p, sizeof v);
  return v;
}
KVC_INLINE void store(float* p, F32 v) { memcpy(p, &v, sizeof v); }
// load_as returns an E4m3 divided by this number.
static constexpr float kE4m3Unit = 1.0f;
KVC_INLINE F32 load_as(float, const void* p) { return load(static_cast<const float*>(p)); }
template <class T>
KVC_INLINE F32 load_as(T, const void* p) {
  T e[kLanes];
  memcpy(e, p, sizeof e);
  return F32{to_float(e[0]), to_float(e[1]), to_float(e[2]), to_float(e[3])};
}
template <class T>
KVC_INLINE F32 load_as_first(T, const void* p, int n) {
  T e[kLanes] = {};
  memcpy(e, p, static_cast<size_t>(n) * sizeof(T));
  return load_as(T{}, e);
}
template <class T>
KVC_INLINE void store_as(T, void* p, F32 v) {
  T e[kLanes];
  for (int i = 0; i < kLanes; ++i) narrow(v[i], &e[i]);
  memcpy(p, e, sizeof e);
}
template <class T>
KVC_INLINE void store_as_first(T, void* p, F32 v, int n) {
  T e[kLanes];
  for (int i = 0; i < kLanes; ++i) narrow(v[i], &e[i]);
  memcpy(p, e, static_cast<size_t>(n) * sizeof(T));
}

// Loads and converts two vectors.
template <class T>
KVC_INLINE void load_two_as(T t, const void* p, F32* out) {
  out[0] = load_as(t, p);
  out[1] = load_as(t, static_cast<const T*>(p) + kLanes);
}

// A vector of 2 * kLanes bf16, two in each lane. load_pairs_first loads the first n <= 2 * kLanes of them.
// convert_lower and convert_upper return the lower and the upper elements of all lanes. zip interleaves a vector of
// even and a vector of odd elements.
using HalfPairs = I32;
KVC_INLINE HalfPairs load_pairs(const void* p) {
  HalfPairs v;
  memcpy(&v, p, sizeof v);
  return v;
}
KVC_INLINE HalfPairs load_pairs_first(const void* p, int n) {
  HalfPairs v = {};
  memcpy(&v, p, static_cast<size_t>(n) * 2);
  return v;
}
KVC_INLINE F32 convert_lower(HalfPairs v) {
  v <<= 16;
  F32 f;
  memcpy(&f, &v, sizeof f);
  return f;
}
KVC_INLINE F32 convert_upper(HalfPairs v) {
  v &= INT32_MIN >> 15;
  F32 f;
  memcpy(&f, &v, sizeof f);
  return f;
}
KVC_INLINE void zip(F32 even, F32 odd, F32* out) {
  out[0] = F32{even[0], odd[0], even[1], odd[1]};
  out[1] = F32{even[2], odd[2], even[3], odd[3]};
}

// Converts the first n elements of v to a quantised type, 1 <= n <= kLanes, and stores them.
template <class T>
KVC_INLINE void store_bytes(T, void* p, F32 v, int n) {
  store_as_first(T{}, p, v, n);
}

// ---- Across lanes

// Returns the sum of v[i]'s lanes in lane i. v: [kLanes].
KVC_INLINE F32 sum_each(const F32* v) {
  return F32{reduce_add(v[0]), reduce_add(v[1]), reduce_add(v[2]), reduce_add(v[3])};
}
// Each lane becomes the maximum over the lanes with the same index modulo kStride. kStride is a power of two.
template <int kStride>
KVC_INLINE F32 max_by_stride(F32 v) {
  if constexpr (kStride <= 2) v = max(v, F32{v[2], v[3], v[0], v[1]});
  if constexpr (kStride <= 1) v = max(v, F32{v[1], v[0], v[3], v[2]});
  return v;
}
// Returns p[i / kRows] in lane i. kRows is a power of two, at most kLanes. The function may read all of p[0, kLanes).
template <int kRows>
KVC_INLINE F32 load_repeated(const float* p) {
  return F32{p[0], p[1 / kRows], p[2 / kRows], p[3 / kRows]};
}
// Transposes the kLanes x kLanes block r[kLanes].
KVC_INLINE void transpose(F32* r) {
  const F32 a = r[0], b = r[1], c = r[2], d = r[3];
  r[0] = F32{a[0], b[0], c[0], d[0]};
  r[1] = F32{a[1], b[1], c[1], d[1]};
  r[2] = F32{a[2], b[2], c[2], d[2]};
  r[3] = F32{a[3], b[3], c[3], d[3]};
}

}  // namespace kvc::kernels::KVC_TARGET

// How stored elements enter the arithmetic: `Widened<T>` converts them to float32 and uses fused multiply-adds on
// whatever q is; BfDots (simd/avx512_bf16.h) feeds bf16 pairs of q and K, P and V to the CPU's bf16 dot product.
//
// A format says: kStep elements a vector load takes, kVecBytes its bytes, kPairs whether two keys share a dword of P,
// kOutputs vectors of o that one vector of V feeds, kTokenScales whether each stored row has a scale. For the panel
// kernel: kRows of a register tile, kRowGroup that go through scores, softmax and P*V together, kTiles whether it
// multiplies tiles itself (simd/avx512_amx.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

template <class T>
struct Widened {
  struct Registers {};  // of a panel item: none but those that the compiler assigns
  using Vec = F32;
  using QueryElement = float;
  static constexpr bool kPairs = false, kTiles = false, kTokenScales = __is_same(T, I8);
  static constexpr int kOutputs = 1, kStep = kLanes, kVecBytes = kLanes * static_cast<int>(sizeof(T));
  static constexpr int kRows = kTileRows, kRowGroup = 24;

  KVC_INLINE_MEMBER Vec load(const unsigned char* p) { return load_as(T{}, p); }
  KVC_INLINE_MEMBER Vec load_first(const unsigned char* p, int n) { return load_as_first(T{}, p, n); }
  // A vector, or one dword for all lanes, of packed q or P.
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return KVC_TARGET::load(p); }
  KVC_INLINE_MEMBER void store_packed(float* p, Vec v) { store(p, v); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return set1(*p); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return fma(a, b, c); }
  // A vector of dwords for the transposition of K.
  KVC_INLINE_MEMBER F32 as_dwords(Vec v) { return v; }

  // P of keys [z * kLanes, + kLanes) into a panel row.
  KVC_INLINE_MEMBER void store_weights(float* row, int z, F32 p) { store(row + z * kLanes, p); }
  // A vector of packed V whose even or odd key counts as absent, for kPairs.
  KVC_INLINE_MEMBER Vec keep_halves(Vec v, bool, bool) { return v; }

  // The vectors of o that V's vector of one key (of two keys, if kPairs) feeds.
  KVC_INLINE_MEMBER void spread(Vec v, Vec, Vec* out) { out[0] = v; }
  // o as accumulated to o in the order of dims.
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    memcpy(row, o, static_cast<size_t>(dims) * sizeof(float));
  }
};

}  // namespace kvc::kernels::KVC_TARGET

// How stored elements enter the arithmetic: `Widened<T>` converts them to float32 and uses fused multiply-adds on
// whatever q is; BfDots (simd/avx512_bf16.h) feeds bf16 pairs of q and K, P and V to the CPU's bf16 dot product.
//
// A format says: kStep elements a vector load takes, kVecBytes its bytes, kParts vectors that it makes of them for the
// scores, kPairs whether two keys share a dword of P, kOutputs vectors of o that one load of V feeds, kTokenScales
// whether each stored row has a scale, kRowFactors whether scores get what q would be multiplied by (where q stays as
// it is), kDecodeRows up to how many rows of a kv head the decode kernel is the faster one (the panel kernel packs K
// and V once for all rows, the decode kernel converts them once for each tile of 8). For the panel kernel: kRows of a
// register tile, kRowGroup that go through scores, softmax and P*V together, kTiles whether it multiplies tiles itself
// (simd/avx512_amx.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

template <class T>
struct Widened {
  struct Registers {};  // of a panel item: none but those that the compiler assigns
  using Vec = F32;      // what is multiplied
  using Raw = Vec;      // what a load gives
  using QueryElement = float;
  static constexpr bool kPairs = false, kTiles = false, kTokenScales = __is_same(T, I8);
  static constexpr bool kRowFactors = false;
  static constexpr int kParts = 1, kOutputs = 1, kStep = kLanes, kVecBytes = kLanes * static_cast<int>(sizeof(T));
  static constexpr int kRows = kTileRows, kRowGroup = 24;
  // Conversion costs nothing, little (bf16), or more.
  static constexpr int kDecodeRows = sizeof(T) == 4 || __is_same(T, Bf16) ? 32
                                     : sizeof(T) == 2 || __is_same(T, I8) ? 20
                                                                          : 15;

  KVC_INLINE_MEMBER Vec load(const unsigned char* p) { return load_as(T{}, p); }
  KVC_INLINE_MEMBER Vec load_first(const unsigned char* p, int n) { return load_as_first(T{}, p, n); }
  // What a load of K makes for the scores, kParts vectors; order_query puts kStep dims of q in the same order.
  KVC_INLINE_MEMBER Vec part(Vec v, int) { return v; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) { memcpy(ordered, q, kStep * sizeof(float)); }
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

// bf16 in the decode kernel: a load of 2 * kLanes elements, and of each pair of them the upper one by a mask and the
// lower one by a shift, where `Widened` takes a conversion and a shift for either. So q and o have the even dims of a
// load in one vector and the odd ones in the next.
struct SplitBf16 : Widened<Bf16> {
  using Raw = HalfPairs;
  static constexpr int kParts = 2, kOutputs = 2, kStep = 2 * kLanes, kVecBytes = 4 * kLanes;

  KVC_INLINE_MEMBER Raw load(const unsigned char* p) { return load_pairs(p); }
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n) { return load_pairs_first(p, n); }
  KVC_INLINE_MEMBER F32 part(Raw v, int i) { return i == 0 ? widen_lower(v) : widen_upper(v); }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {
    for (int i = 0; i < kLanes; ++i) {
      ordered[i] = q[2 * i];
      ordered[kLanes + i] = q[2 * i + 1];
    }
  }
  KVC_INLINE_MEMBER void spread(Raw v, Raw, F32* out) {
    out[0] = widen_lower(v);
    out[1] = widen_upper(v);
  }
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    for (int d = 0; d < dims; d += kStep) {
      F32 ordered[2];
      zip(KVC_TARGET::load(o + d), KVC_TARGET::load(o + d + kLanes), ordered);
      store(row + d, ordered[0]);
      store(row + d + kLanes, ordered[1]);
    }
  }
};

// float8 in the decode kernel: two vectors a load, since they share most of their conversion.
template <class T>
struct Doubled : Widened<T> {
  struct Raw {
    F32 parts[2];
  };
  static constexpr int kParts = 2, kOutputs = 2, kStep = 2 * kLanes, kVecBytes = kStep * static_cast<int>(sizeof(T));

  KVC_INLINE_MEMBER Raw load(const unsigned char* p) {
    Raw raw;
    load_two_as(T{}, p, raw.parts);
    return raw;
  }
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n) {
    if (n <= kLanes) return {{load_as_first(T{}, p, n), zero()}};
    return {{load_as(T{}, p), load_as_first(T{}, p + kLanes * sizeof(T), n - kLanes)}};
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) { return raw.parts[i]; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) { memcpy(ordered, q, kStep * sizeof(float)); }
  KVC_INLINE_MEMBER void spread(const Raw& raw, const Raw&, F32* out) {
    out[0] = raw.parts[0];
    out[1] = raw.parts[1];
  }
};

// The format of the decode kernel where rows are those of Format.
template <class Format>
struct DecodeFormatOf {
  using Type = Format;
};
template <>
struct DecodeFormatOf<Widened<Bf16>> {
  using Type = SplitBf16;
};
template <>
struct DecodeFormatOf<Widened<E4m3>> {
  using Type = Doubled<E4m3>;
};
template <>
struct DecodeFormatOf<Widened<E5m2>> {
  using Type = Doubled<E5m2>;
};

}  // namespace kvc::kernels::KVC_TARGET

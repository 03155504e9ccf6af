// How arithmetic uses stored elements. `Widened<T>` converts them to float32 and uses fused multiply-adds with any q.
// BfDots (simd/avx512_bf16.h) passes bf16 pairs of q and K, and of P and V, to the CPU's bf16 dot product.
//
// A format defines these constants:
//   kStep, kVecBytes  elements and bytes of a vector load
//   kParts            vectors for the scores that one load of K makes
//   kOutputs          vectors of o to which one load of V adds
//   kPairs            whether two keys share a dword of P
//   kTokenScales      whether each stored row has a scale
//   kZeroPoints       whether it also has a zero point, which loads take: load(p, zero), load_first(p, n, zero)
//   kScaleBytes       bytes of the scales, after the row's elements, that belong to a vector load, if blocks of dims
//   have
//                     scales, which loads take: load(p, scales), load_first(p, n, scales). Else 0
//   kNibbles          whether elements have 4 bits. Kernels of other formats read such rows from scratch. The decode
//                     kernel then has tiles of 1 and 4 rows, and 128 dims as a constant, which halves its code
//   kRowFactors       whether the factor of q is multiplied into scores, because q must stay unchanged
//   kDecodeRows       the most rows of a kv head for which the decode kernel is faster: the panel kernel packs K and V
//                     once for all rows, the decode kernel converts them once for each tile of 8
//   kRows, kRowGroup  panel kernel: rows of a register tile; rows that go through scores, softmax and P*V together
//   kTiles            panel kernel: whether the format multiplies tiles itself (simd/avx512_amx.h)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

template <class T>
struct Widened {
  struct Registers {};  // that a panel item must set up: none here
  using Vec = F32;      // the operand of a product
  using Raw = Vec;      // the result of a load
  using QueryElement = float;
  static constexpr bool kPairs = false, kTiles = false, kTokenScales = __is_same(T, I8);
  static constexpr bool kRowFactors = false, kZeroPoints = false, kNibbles = false;
  static constexpr int kParts = 1, kOutputs = 1, kStep = kLanes, kVecBytes = kLanes * static_cast<int>(sizeof(T));
  static constexpr int kScaleBytes = 0;
  static constexpr int kRows = kTileRows, kRowGroup = 24;
  // By the cost of conversion: none, little (bf16), or more.
  static constexpr int kDecodeRows = sizeof(T) == 4 || __is_same(T, Bf16) ? 32
                                     : sizeof(T) == 2 || __is_same(T, I8) ? 20
                                                                          : 15;

  KVC_INLINE_MEMBER Vec load(const unsigned char* p) { return load_as(T{}, p); }
  KVC_INLINE_MEMBER Vec load_first(const unsigned char* p, int n) { return load_as_first(T{}, p, n); }
  // Part i of the kParts vectors that a load of K makes for the scores. order_query arranges kStep dims of q in the
  // same order.
  KVC_INLINE_MEMBER Vec part(Vec v, int) { return v; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) { memcpy(ordered, q, kStep * sizeof(float)); }
  // Loads packed q or P: a vector, or one dword for all lanes.
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return KVC_TARGET::load(p); }
  KVC_INLINE_MEMBER void store_packed(float* p, Vec v) { store(p, v); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return set1(*p); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return fma(a, b, c); }
  // A vector as dwords, to transpose K.
  KVC_INLINE_MEMBER F32 as_dwords(Vec v) { return v; }

  // Stores P of keys [z * kLanes, (z + 1) * kLanes) to a panel row.
  KVC_INLINE_MEMBER void store_weights(float* row, int z, F32 p) { store(row + z * kLanes, p); }
  // With kPairs: a vector of packed V without its even key, or without its odd key.
  KVC_INLINE_MEMBER Vec keep_halves(Vec v, bool, bool) { return v; }

  // The vectors that V of one key (with kPairs, of two keys) adds to o.
  KVC_INLINE_MEMBER void spread(Vec v, Vec, Vec* out) { out[0] = v; }
  // Copies o from the order of accumulation to the order of dims.
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    memcpy(row, o, static_cast<size_t>(dims) * sizeof(float));
  }
};

// bf16 in the decode kernel. A load has 2 * kLanes elements; a mask gives the upper one of each pair, and a shift the
// lower one. `Widened` needs a conversion and a shift for each. So q and o have the even dims of a load in one vector
// and the odd dims in the next.
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

// float8 in the decode kernel: two vectors a load, because they share most of their conversion.
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

// The format of the decode kernel for rows of Format.
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

// The format of the panel kernel for rows of Format. Panels of converted rows are float32, whatever is stored.
template <class Format>
struct PanelFormatOf {
  using Type = Format;
};
template <class T>
struct PanelFormatOf<Widened<T>> {
  using Type = Widened<float>;
};

}  // namespace kvc::kernels::KVC_TARGET

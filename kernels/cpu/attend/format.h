// A format says how stored elements take part in arithmetic. `Converted<T>` converts them to float32 and accepts any
// type of q. BfDots (simd/avx512_bf16.h) uses the CPU's bf16 dot product. This instruction multiplies two dims of q by
// two dims of K, or P of two keys by V of these keys.
//
// A format defines these constants:
//   kStep, kVecBytes  number of elements, and of bytes, in a vector load
//   kParts            number of vectors that one load of K gives, for the scores
//   kOutputs          number of vectors of o to which one load of V is added
//   kPairs            whether a dword of P (softmax weights) holds the weights of two keys
//   kTokenScales      whether each stored row has a scale
//   kZeroPoints       whether each stored row also has a zero point. Loads then are load(p, zero) and
//                     load_first(p, n, zero)
//   kScaleBytes       bytes of the scales of one vector load if blocks of dims have scales, else 0. These scales lie
//                     after the row's elements. Loads then are load(p, scales) and load_first(p, n, scales)
//   kWholeRows        panel kernel: whether a load needs the begin of the row and its scales. Then load_of_row replaces
//                     load and load_first
//   kNibbles          whether elements have 4 bits. Then the decode kernel has only tiles of 1 and 4 rows, and only 128
//                     as a constant head dim, which halves its code
//   kRowFactors       whether query_factor multiplies the scores, because q times the factor may not be exact in bf16
//   kFarInL1          decode kernel: whether far prefetches of adjacent rows go to the level-1 cache. All other far
//                     prefetches go to the level-2 cache
//   kDecodeRows       the most rows of a kv head for which the decode kernel is faster. The panel kernel packs K and V
//                     once for all rows. The decode kernel converts them once for each tile of 8 rows
//   kRows             panel kernel: rows of a register tile
//   kRowGroup         panel kernel: rows whose scores, softmax and P*V are computed together
//   kTiles            panel kernel: whether the format multiplies matrix tiles itself (simd/avx512_amx.h)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/block_row.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

template <class T>
struct Converted {
  struct Registers {};  // an object of this type exists while the panel kernel runs; only AMX uses it
  using Vec = F32;      // the operand of a product
  using Raw = Vec;      // the result of a load
  using QueryElement = float;
  static constexpr bool kPairs = false, kTiles = false, kTokenScales = __is_same(T, I8);
  static constexpr bool kRowFactors = false, kZeroPoints = false, kNibbles = false, kWholeRows = false;
  static constexpr bool kFarInL1 = false;
  static constexpr int kParts = 1, kOutputs = 1, kStep = kLanes, kVecBytes = kLanes * static_cast<int>(sizeof(T));
  static constexpr int kScaleBytes = 0;
  static constexpr int kRows = kTileRows, kRowGroup = 24;
  // The value depends on the cost of conversion: none (float32), little (bf16), or more.
  static constexpr int kDecodeRows = sizeof(T) == 4 || __is_same(T, Bf16) ? 32
                                     : sizeof(T) == 2 || __is_same(T, I8) ? 20
                                                                          : 15;

  KVC_INLINE_MEMBER Vec load(const unsigned char* p) { return load_as(T{}, p); }
  KVC_INLINE_MEMBER Vec load_first(const unsigned char* p, int n) { return load_as_first(T{}, p, n); }
  // Returns vector i of the kParts vectors that a load of K gives. order_query arranges kStep dims of q in the same
  // order.
  KVC_INLINE_MEMBER Vec part(Vec v, int) { return v; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) { memcpy(ordered, q, kStep * sizeof(float)); }
  // load_packed loads a vector of packed operands. broadcast loads one dword into all lanes.
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return KVC_TARGET::load(p); }
  KVC_INLINE_MEMBER void store_packed(float* p, Vec v) { store(p, v); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return set1(*p); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return fma(a, b, c); }
  // Returns the same bits as a vector of dwords. K is transposed in units of dwords.
  KVC_INLINE_MEMBER F32 as_dwords(Vec v) { return v; }

  // Stores P of the keys [z * kLanes, (z + 1) * kLanes) of a panel row.
  KVC_INLINE_MEMBER void store_weights(float* row, int z, F32 p) { store(row + z * kLanes, p); }
  // With kPairs: sets the even keys of packed V to 0 unless the first argument is true, and the odd keys unless the
  // second is. So a row does not add keys that it does not see.
  KVC_INLINE_MEMBER Vec keep_halves(Vec v, bool, bool) { return v; }

  // Returns the vectors that V of one key adds to o. With kPairs, the arguments are V of two keys.
  KVC_INLINE_MEMBER void spread(Vec v, Vec, Vec* out) { out[0] = v; }
  // Copies o from the order of accumulation to the order of dims.
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    memcpy(row, o, static_cast<size_t>(dims) * sizeof(float));
  }
};

// bf16 in the decode kernel. A load has 2 * kLanes elements, two in each lane. A shift gives the lower element of each
// lane, and a mask gives the upper element. `Converted` would need a conversion and a shift for each vector. In q and
// o, one vector holds the even dims of a load, and the next vector holds its odd dims.
struct SplitBf16 : Converted<Bf16> {
  using Raw = HalfPairs;
  static constexpr int kParts = 2, kOutputs = 2, kStep = 2 * kLanes, kVecBytes = 4 * kLanes;

  KVC_INLINE_MEMBER Raw load(const unsigned char* p) { return load_pairs(p); }
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n) { return load_pairs_first(p, n); }
  KVC_INLINE_MEMBER F32 part(Raw v, int i) { return i == 0 ? convert_lower(v) : convert_upper(v); }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {
    for (int i = 0; i < kLanes; ++i) {
      ordered[i] = q[2 * i];
      ordered[kLanes + i] = q[2 * i + 1];
    }
  }
  KVC_INLINE_MEMBER void spread(Raw v, Raw, F32* out) {
    out[0] = convert_lower(v);
    out[1] = convert_upper(v);
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

// float8 in the decode kernel. A load gives two vectors, because they share most of their conversion.
template <class T>
struct Doubled : Converted<T> {
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

// Block rows (kernels/common/block_row.h) in the panel kernel. A load has kStep dims of one block, or of the dims after
// the last block.
struct Blocks : Converted<float> {
  static constexpr int kVecBytes = kLanes;  // of elements of 8 bits
  static constexpr int kDecodeRows = 15;
  static constexpr bool kWholeRows = true;
  static_assert(kBlockDims % kStep == 0);

  // scales: as scales_of_row returns it. It is not inlined, because callers unroll loops over it.
  [[gnu::noinline]] static Vec load_of_row(const BlockRow& shape, const unsigned char* row, const unsigned char* scales,
                                           int chunk) {
    const int dim = chunk * kStep;
    if (dim >= shape.block_dims) {
      const unsigned char* const p = row + shape.rest_at;
      if (shape.rest == Type::kE4m3) return mul(load_as(E4m3{}, p + (dim - shape.block_dims)), set1(kE4m3Unit));
      return load_as(Bf16{}, p + (dim - shape.block_dims) * 2);
    }
    const F32 scale = set1(scale_of_dim(shape, scales, dim));
    if (shape.element == Type::kE4m3) return mul(mul(load_as(E4m3{}, row + dim), set1(kE4m3Unit)), scale);
    return mul(mul(load_nibbles(row + dim / 2), set1(kE4m3Unit * kSpreadUnit)), scale);
  }

 private:
  // Loads kStep elements of 4 bits as e4m3, each divided by kSpreadUnit.
  KVC_INLINE_MEMBER Vec load_nibbles(const unsigned char* p) {
    constexpr int kEach = kStep < 8 ? kStep : 8;
    unsigned char spread[16] = {};
    for (int i = 0; i < kStep; i += kEach) {
      uint32_t packed = 0;
      memcpy(&packed, p + i / 2, kEach / 2);
      const uint64_t bytes = spread_nibbles(packed);
      memcpy(spread + i, &bytes, sizeof bytes);
    }
    return load_as(E4m3{}, spread);
  }
};

// The format that the decode kernel uses for rows of Format.
template <class Format>
struct DecodeFormatOf {
  using Type = Format;
};
template <>
struct DecodeFormatOf<Converted<Bf16>> {
  using Type = SplitBf16;
};
template <>
struct DecodeFormatOf<Converted<E4m3>> {
  using Type = Doubled<E4m3>;
};
template <>
struct DecodeFormatOf<Converted<E5m2>> {
  using Type = Doubled<E5m2>;
};

// The format that the panel kernel uses for rows of Format. If rows are converted, panels are float32, whatever type is
// stored.
template <class Format>
struct PanelFormatOf {
  using Type = Format;
};
template <class T>
struct PanelFormatOf<Converted<T>> {
  using Type = Converted<float>;
};
template <>
struct PanelFormatOf<Blocks> {
  using Type = Converted<float>;
};

}  // namespace kvc::kernels::KVC_TARGET

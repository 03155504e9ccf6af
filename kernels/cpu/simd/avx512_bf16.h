// Defines the formats of the target avx512_bf16, for bf16 q. The instruction vdpbf16ps multiplies pairs of bf16, and
// sums the products in float32. It treats bf16 subnormals as 0. P is rounded to bf16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/simd/avx512_vbmi.h"

namespace kvc::kernels::KVC_TARGET {

// bf16 q over bf16 K and V.
struct BfDots {
  struct Registers {};
  using Vec = __m512i;
  using Raw = Vec;
  using QueryElement = Bf16;
  static constexpr bool kPairs = true, kTiles = false, kTokenScales = false, kZeroPoints = false, kNibbles = false;
  static constexpr bool kWholeRows = false;
  static constexpr bool kRowFactors = false;
  static constexpr bool kFarInL1 = true;  // on Zen 5 a tenth faster from memory, and a fifth from the level-3 cache
  static constexpr int kParts = 1, kOutputs = 2, kStep = 2 * kLanes, kVecBytes = 64, kScaleBytes = 0;
  static constexpr int kRows = kTileRows, kRowGroup = 24, kDecodeRows = 32;

  KVC_INLINE_MEMBER Vec load(const unsigned char* p) { return _mm512_loadu_si512(p); }
  KVC_INLINE_MEMBER Vec load_first(const unsigned char* p, int n) {
    return _mm512_maskz_loadu_epi16(first_halves(n), p);
  }
  KVC_INLINE_MEMBER Vec part(Vec v, int) { return v; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {  // q consists of bf16 pairs already
    memcpy(ordered, q, kLanes * sizeof(float));
  }
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return _mm512_loadu_si512(p); }
  KVC_INLINE_MEMBER void store_packed(float* p, Vec v) { _mm512_storeu_si512(p, v); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return _mm512_castps_si512(_mm512_set1_ps(*p)); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
  KVC_INLINE_MEMBER F32 as_dwords(Vec v) { return _mm512_castsi512_ps(v); }

  // Pairs up the rows of two neighbouring keys. The unpack instructions change the order of the dims of o.
  // natural_order restores the order.
  KVC_INLINE_MEMBER void spread(Vec even, Vec odd, Vec* out) {
    out[0] = _mm512_unpacklo_epi16(even, odd);
    out[1] = _mm512_unpackhi_epi16(even, odd);
  }
  // Of each 32 dims, vector 0 has the dims 8i..8i+3, and vector 1 has the dims 8i+4..8i+7, for i = 0..3.
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    for (int d = 0; d < dims; d += kStep) {
      const F32 a = KVC_TARGET::load(o + d), b = KVC_TARGET::load(o + d + kLanes);
      const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      store(row + d, _mm512_permutex2var_ps(a, low, b));
      store(row + d + kLanes, _mm512_permutex2var_ps(a, high, b));
    }
  }

  // Converts P of a decode tile to dwords [key / 2][kRows]. a and b have P as floats [key][kRows].
  template <int kRows>
  KVC_INLINE_MEMBER void store_pairs(float* pairs, F32 a, F32 b) {
    alignas(64) static constexpr auto order = pair_order<kRows>();
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(b, a);
    _mm512_storeu_si512(pairs, _mm512_permutexvar_epi16(_mm512_load_si512(order.index), halves));
  }
  // Converts P of 16 keys of a panel row to 8 dwords.
  KVC_INLINE_MEMBER void store_weights(float* row, int z, F32 p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + z * kLanes / 2), (__m256i)_mm512_cvtneps_pbh(p));
  }
  // Returns packed V with its even keys set to 0 unless `even`, and its odd keys set to 0 unless `odd`.
  KVC_INLINE_MEMBER Vec keep_halves(Vec v, bool even, bool odd) {
    const uint32_t mask = (even ? 0xffffu : 0u) | (odd ? 0xffff0000u : 0u);
    return _mm512_and_si512(v, _mm512_set1_epi32(static_cast<int>(mask)));
  }

 private:
  struct PairOrder {
    uint16_t index[32];
  };
  template <int kRows>
  static constexpr PairOrder pair_order() {
    PairOrder order = {};
    for (int half = 0; half < 32; ++half) {
      const int pair = half / 2 / kRows, row = half / 2 % kRows;
      order.index[half] = static_cast<uint16_t>((2 * pair + half % 2) * kRows + row);
    }
    return order;
  }
};

constexpr ByteTables int8_tables() {
  ByteTables tables = {};
  for (int i = 1; i < 128; ++i) {
    int exponent = 7, mantissa = i;
    for (; mantissa < 128; mantissa *= 2) --exponent;
    const int bits = (exponent + 127) * 128 + mantissa - 128;
    tables.upper[i] = static_cast<uint8_t>(bits >> 8);
    tables.lower[i] = static_cast<uint8_t>(bits);
  }
  return tables;
}

static constexpr ByteTables kInt8Tables = int8_tables();

// The magnitude of -128 needs 8 bits, so the tables have no entry for it. The lookups read entry 0 instead. The lower
// byte of that entry is right, because it is 0. The upper byte is replaced.
KVC_INLINE BytePairs bytes_to_pairs(I8, __m512i x) {
  const __m512i magnitudes = _mm512_abs_epi8(x);
  const __mmask64 is_128 = _mm512_movepi8_mask(magnitudes);
  const __m512i upper = look_up(kInt8Tables.upper, magnitudes);
  return join_bytes(look_up(kInt8Tables.lower, magnitudes), _mm512_mask_mov_epi8(upper, is_128, _mm512_set1_epi8(0x43)),
                    x);
}

// bf16 q over e4m3 or int8 in the decode kernel. A bf16 represents every element exactly. The product of q and
// query_factor may not be exact in bf16. So scores are multiplied by that factor, and q keeps its bits.
template <class T>
struct ByteDots : BfDots {
  using Raw = BytePairs;
  static constexpr bool kTokenScales = __is_same(T, I8), kRowFactors = true, kFarInL1 = false;
  static constexpr int kParts = 2, kOutputs = 4, kStep = 4 * kLanes, kDecodeRows = kTokenScales ? 20 : 15;

  KVC_INLINE_MEMBER Raw load(const unsigned char* p) { return bytes_to_pairs(T{}, _mm512_loadu_si512(p)); }
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n) {
    return bytes_to_pairs(T{}, load_bytes_first(p, n));
  }
  KVC_INLINE_MEMBER Vec part(const Raw& raw, int i) { return raw.pairs[i]; }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {  // arranges bf16 pairs as BytePairs does
    for (int i = 0; i < kParts * kLanes; ++i) ordered[i] = q[i % kLanes / 4 * 8 + i / kLanes * 4 + i % 4];
  }
  KVC_INLINE_MEMBER void spread(const Raw& even, const Raw& odd, Vec* out) {
    KVC_UNROLL for (int i = 0; i < kParts; ++i) BfDots::spread(even.pairs[i], odd.pairs[i], out + 2 * i);
  }
  // Of each 64 dims, vector i has the dims 16j + 4i .. 16j + 4i + 3, for j = 0..3.
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    for (int d = 0; d < dims; d += kStep) {
      F32 quarters[4];
      KVC_UNROLL for (int i = 0; i < 4; ++i) {
        const float* pair = o + d + i / 2 * 2 * kLanes;
        quarters[i] = _mm512_shuffle_f32x4(KVC_TARGET::load(pair), KVC_TARGET::load(pair + kLanes), 0x44);
        if (i % 2 != 0) {
          quarters[i] = _mm512_shuffle_f32x4(KVC_TARGET::load(pair), KVC_TARGET::load(pair + kLanes), 0xee);
        }
      }
      KVC_UNROLL for (int i = 0; i < 2; ++i) {
        store(row + d + 2 * i * kLanes, _mm512_shuffle_f32x4(quarters[i], quarters[i + 2], 0x88));
        store(row + d + (2 * i + 1) * kLanes, _mm512_shuffle_f32x4(quarters[i], quarters[i + 2], 0xdd));
      }
    }
  }
};

}  // namespace kvc::kernels::KVC_TARGET

// Defines the format for e4m3 in the decode kernel of the target avx512_vbmi. An element becomes a bf16. A table of 128
// bytes has the upper byte of the bf16, and another table has the lower byte. The index in both tables is the element
// without its sign. The lookups take 13 operations for 64 elements, and also convert subnormals and NaN. Conversion by
// way of float16 takes 18 operations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/simd/avx512.h"

namespace kvc::kernels::KVC_TARGET {

struct alignas(64) ByteTables {
  uint8_t upper[128], lower[128];
};

constexpr ByteTables e4m3_tables() {
  ByteTables tables = {};
  for (int i = 1; i < 128; ++i) {
    // The bf16 is mantissa * 2^exponent. This value lacks the factor kE4m3Unit.
    int exponent = (i < 8 ? 1 : i / 8) - 7 - 3 - 8;
    int mantissa = i < 8 ? i : i % 8 + 8;
    for (; mantissa < 128; mantissa *= 2) --exponent;
    const int bits = i == 127 ? 0x7fc0 : (exponent + 7 + 127) * 128 + mantissa - 128;
    tables.upper[i] = static_cast<uint8_t>(bits >> 8);
    tables.lower[i] = static_cast<uint8_t>(bits);
  }
  return tables;
}

static constexpr ByteTables kE4m3Tables = e4m3_tables();
static_assert(kE4m3Unit == 256.0f);

// 64 elements as bf16. Of each 16 elements, the first 8 are in pairs[0] and the other 8 in pairs[1].
struct BytePairs {
  HalfPairs pairs[2];
};

// Looks up the low 7 bits of each byte of `indices` in a table of 128 bytes.
KVC_INLINE __m512i look_up(const uint8_t* table, __m512i indices) {
  return _mm512_permutex2var_epi8(_mm512_load_si512(table), indices, _mm512_load_si512(table + 64));
}

// Joins the lower and the upper bytes of bf16. Bit 7 of each byte of `signs` becomes the sign.
KVC_INLINE BytePairs join_bytes(__m512i lower, __m512i upper, __m512i signs) {
  constexpr int kOrMasked = 0xf8;  // a | (b & c)
  upper = _mm512_ternarylogic_epi32(upper, signs, _mm512_set1_epi8(static_cast<char>(0x80)), kOrMasked);
  return {{_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)}};
}

KVC_INLINE BytePairs bytes_to_pairs(E4m3, __m512i x) {
  return join_bytes(look_up(kE4m3Tables.lower, x), look_up(kE4m3Tables.upper, x), x);
}

// Loads n bytes, 1 <= n <= 64.
KVC_INLINE __m512i load_bytes_first(const unsigned char* p, int n) {
  return _mm512_maskz_loadu_epi8(n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0}, p);
}

struct TabledE4m3 {
  using Vec = F32;
  using Raw = BytePairs;
  using QueryElement = float;
  static constexpr bool kPairs = false, kTokenScales = false, kZeroPoints = false, kRowFactors = false;
  static constexpr bool kNibbles = false, kWholeRows = false, kFarInL1 = false;
  static constexpr int kParts = 4, kOutputs = 4, kStep = 4 * kLanes, kVecBytes = 64, kScaleBytes = 0;

  KVC_INLINE_MEMBER Raw load(const unsigned char* p) { return bytes_to_pairs(E4m3{}, _mm512_loadu_si512(p)); }
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n) {
    return bytes_to_pairs(E4m3{}, load_bytes_first(p, n));
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) {
    return i % 2 == 0 ? convert_lower(raw.pairs[i / 2]) : convert_upper(raw.pairs[i / 2]);
  }
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return KVC_TARGET::load(p); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return set1(*p); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return fma(a, b, c); }
  KVC_INLINE_MEMBER void spread(const Raw& raw, const Raw&, F32* out) {
    KVC_UNROLL for (int i = 0; i < kParts; ++i) out[i] = part(raw, i);
  }
  // Each unpack instruction gives 8 of each 16 dims. Then a shift and a mask separate even and odd dims.
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {
    for (int i = 0; i < kStep; ++i) {
      const int part = i / kLanes, lane = i % kLanes;
      ordered[i] = q[lane / 4 * 16 + part / 2 * 8 + lane % 4 * 2 + part % 2];
    }
  }
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    for (int d = 0; d < dims; d += kStep) {
      F32 first[2], second[2];  // from pairs[0], and from pairs[1]
      zip(KVC_TARGET::load(o + d), KVC_TARGET::load(o + d + kLanes), first);
      zip(KVC_TARGET::load(o + d + 2 * kLanes), KVC_TARGET::load(o + d + 3 * kLanes), second);
      KVC_UNROLL for (int i = 0; i < 2; ++i) {
        store(row + d + 2 * i * kLanes, _mm512_shuffle_f32x4(first[i], second[i], 0x44));
        store(row + d + (2 * i + 1) * kLanes, _mm512_shuffle_f32x4(first[i], second[i], 0xee));
      }
    }
  }
};

}  // namespace kvc::kernels::KVC_TARGET

// Defines the formats for elements of 4 bits in the decode kernel of the target avx512. Each dword of a vector has 8
// elements. A shift moves one of these elements to the lowest 4 bits, and a permutation of 16 floats replaces the
// element by its value. For uint4, the 16 floats are differences from the key's zero point. So 16 elements cost two
// vector operations, and the zero point costs none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/simd/avx512.h"

namespace kvc::kernels::KVC_TARGET {

struct alignas(64) NibbleTables {
  float values[16][16];  // [zero point][stored]
};

constexpr NibbleTables nibble_tables() {
  NibbleTables tables = {};
  for (int zero = 0; zero < 16; ++zero) {
    for (int stored = 0; stored < 16; ++stored) tables.values[zero][stored] = static_cast<float>(stored - zero);
  }
  return tables;
}

static constexpr NibbleTables kNibbleTables = nibble_tables();

// uint4. A load has 64 elements in 32 bytes, and puts them into both halves of the vector.
struct TabledNibbles {
  using Vec = F32;
  using QueryElement = float;
  struct Raw {
    __m512i elements;
    F32 values;
  };
  static constexpr bool kPairs = false, kTokenScales = true, kZeroPoints = true, kRowFactors = false;
  static constexpr bool kNibbles = true, kWholeRows = false, kFarInL1 = false;
  static constexpr int kParts = 4, kOutputs = 4, kStep = 4 * kLanes, kVecBytes = 32, kDecodeRows = 20;
  static constexpr int kScaleBytes = 0;

  KVC_INLINE_MEMBER Raw looked_up(__m256i elements, int32_t zero) {
    return {_mm512_broadcast_i64x4(elements), _mm512_load_ps(kNibbleTables.values[zero])};
  }
  KVC_INLINE_MEMBER Raw load(const unsigned char* p, int32_t zero) {
    return looked_up(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), zero);
  }
  // n is a multiple of 16. The elements after the first n are read as 0, and o has room for their results.
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n, int32_t zero) {
    return looked_up(_mm256_maskz_loadu_epi64(static_cast<__mmask8>((1u << n / 16) - 1u), p), zero);
  }
  // Lane j of part i has element 8j + i, and lane 8 + j has element 8j + 4 + i, for j = 0..7.
  KVC_INLINE_MEMBER F32 values_of(__m512i elements, F32 values, int i) {
    const __m512i shifts = _mm512_add_epi32(_mm512_set1_epi32(4 * i),
                                            _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16));
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(elements, shifts), values);
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) { return values_of(raw.elements, raw.values, i); }
  KVC_INLINE_MEMBER int element_of(int part, int lane) { return lane % 8 * 8 + lane / 8 * 4 + part; }
  KVC_INLINE_MEMBER Vec load_packed(const float* p) { return KVC_TARGET::load(p); }
  KVC_INLINE_MEMBER Vec broadcast(const float* p) { return set1(*p); }
  KVC_INLINE_MEMBER F32 multiply_add(Vec a, Vec b, F32 c) { return fma(a, b, c); }
  KVC_INLINE_MEMBER void spread(const Raw& raw, const Raw&, F32* out) {
    KVC_UNROLL for (int i = 0; i < kParts; ++i) out[i] = part(raw, i);
  }
  KVC_INLINE_MEMBER void order_query(const float* q, float* ordered) {
    for (int i = 0; i < kStep; ++i) ordered[i] = q[element_of(i / kLanes, i % kLanes)];
  }
  KVC_INLINE_MEMBER void natural_order(const float* o, float* row, int dims) {
    for (int d = 0; d < dims; d += kStep) {
      for (int i = 0; i < kStep; ++i) row[d + element_of(i / kLanes, i % kLanes)] = o[d + i];
    }
  }
};

// float4. Lane i of Raw::scales has the scale for lane i of every part, because a lane has dims of the same block in
// all parts. Scales are E4m3. They are converted to float16 with an exponent that is 8 too small, so the values in
// part() are multiplied by 256.
struct ScaledNibbles : TabledNibbles {
  struct Raw {
    __m512i elements;
    F32 scales;
  };
  static constexpr bool kTokenScales = false, kZeroPoints = false;
  static constexpr int kScaleBytes = 4;

  // scales: the bytes of four blocks.
  KVC_INLINE_MEMBER Raw scaled(__m256i elements, uint32_t scales) {
    const __m256i bytes = _mm256_set1_epi32(static_cast<int32_t>(scales & 0x7f7f7f7fu));
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(-1, 0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3));
    const __m256i halves = _mm256_srli_epi16(_mm256_shuffle_epi8(bytes, order), 1);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(halves, _mm256_set1_epi16(0x7f << 7));
    return {_mm512_broadcast_i64x4(elements),
            _mm512_mask_blend_ps(nan, _mm512_cvtph_ps(halves), set1(__builtin_nanf("")))};
  }
  KVC_INLINE_MEMBER Raw load(const unsigned char* p, const unsigned char* scales) {
    uint32_t bytes;
    memcpy(&bytes, scales, sizeof bytes);
    return scaled(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), bytes);
  }
  // n is a multiple of 16. The elements after the first n are read as 0, and o has room for their results.
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int n, const unsigned char* scales) {
    uint32_t bytes = 0;
    memcpy(&bytes, scales, static_cast<size_t>(n / 16));
    return scaled(_mm256_maskz_loadu_epi64(static_cast<__mmask8>((1u << n / 16) - 1u), p), bytes);
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) {
    const F32 values = _mm512_setr_ps(0.0f, 128.0f, 256.0f, 384.0f, 512.0f, 768.0f, 1024.0f, 1536.0f, 0.0f, -128.0f,
                                      -256.0f, -384.0f, -512.0f, -768.0f, -1024.0f, -1536.0f);
    return mul(values_of(raw.elements, values, i), raw.scales);
  }
  KVC_INLINE_MEMBER void spread(const Raw& raw, const Raw&, F32* out) {
    KVC_UNROLL for (int i = 0; i < kParts; ++i) out[i] = part(raw, i);
  }
};

}  // namespace kvc::kernels::KVC_TARGET

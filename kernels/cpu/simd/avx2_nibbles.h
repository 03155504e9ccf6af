// Defines the formats for elements of 4 bits in the decode kernel of the target avx2. Two byte lookups of 16 entries
// replace an element by the two bytes of its value as a bf16, and interleaving these bytes gives the bf16. Then a shift
// or a mask makes a float32 of each bf16. So a vector of 8 elements costs less than three operations. All values are
// exact as bf16.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cpu/simd/avx2.h"

namespace kvc::kernels::KVC_TARGET {

// The values of the 16 possible elements as bf16: their high bytes, and their low bytes.
struct alignas(16) NibbleValues {
  unsigned char high[16], low[16];
};

constexpr NibbleValues nibble_values(const float* of) {
  NibbleValues values = {};
  for (int i = 0; i < 16; ++i) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, of[i]);
    values.high[i] = static_cast<unsigned char>(bits >> 24);
    values.low[i] = static_cast<unsigned char>(bits >> 16);
  }
  return values;
}

// For uint4: of_zero[z] has the differences of the 16 levels from the zero point z.
struct LevelTables {
  NibbleValues of_zero[16];
};
constexpr LevelTables level_tables() {
  LevelTables tables = {};
  for (int zero = 0; zero < 16; ++zero) {
    float differences[16] = {};
    for (int level = 0; level < 16; ++level) differences[level] = static_cast<float>(level - zero);
    tables.of_zero[zero] = nibble_values(differences);
  }
  return tables;
}
static constexpr LevelTables kLevelTables = level_tables();

// uint4. A load has 32 elements in 16 bytes.
struct TabledNibbles {
  using Vec = F32;
  using QueryElement = float;
  struct Raw {
    HalfPairs words[2];  // words[i] has the elements [16 * i, 16 * (i + 1)) as bf16
  };
  static constexpr bool kPairs = false, kTokenScales = true, kZeroPoints = true, kRowFactors = false;
  static constexpr bool kNibbles = true, kWholeRows = false, kFarInL1 = false;
  static constexpr int kParts = 4, kOutputs = 4, kStep = 4 * kLanes, kVecBytes = 16, kDecodeRows = 20;
  static constexpr int kScaleBytes = 0;

  // The lower half of the vector looks up the even elements, and the upper half looks up the odd elements.
  KVC_INLINE_MEMBER void look_up(__m128i bytes, const NibbleValues& values, HalfPairs* words) {
    const __m256i shifted = _mm256_srlv_epi64(_mm256_broadcastsi128_si256(bytes), _mm256_setr_epi64x(0, 0, 4, 4));
    const __m256i elements = _mm256_and_si256(shifted, _mm256_set1_epi8(15));
    const auto bytes_of = [&](const unsigned char* table) __attribute__((always_inline)) {
      const __m128i entries = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), elements);
    };
    const __m256i high = bytes_of(values.high), low = bytes_of(values.low);
    words[0] = _mm256_unpacklo_epi8(low, high);
    words[1] = _mm256_unpackhi_epi8(low, high);
  }
  KVC_INLINE_MEMBER __m128i load_bytes(const unsigned char* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  // Loads the 16 elements of the first block.
  KVC_INLINE_MEMBER __m128i load_first_block(const unsigned char* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  KVC_INLINE_MEMBER Raw load(const unsigned char* p, int32_t zero) {
    Raw raw;
    look_up(load_bytes(p), kLevelTables.of_zero[zero], raw.words);
    return raw;
  }
  // n is 16. The other elements are read as level 0, and o has room for their results.
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int, int32_t zero) {
    Raw raw;
    look_up(load_first_block(p), kLevelTables.of_zero[zero], raw.words);
    return raw;
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) {
    return i % 2 == 0 ? convert_lower(raw.words[i / 2]) : convert_upper(raw.words[i / 2]);
  }
  // Returns the number of the element in a lane of a part. Each half of words[i] has 8 elements, two in each dword.
  KVC_INLINE_MEMBER int element_of(int part, int lane) {
    return part / 2 * 16 + lane % 4 * 4 + part % 2 * 2 + lane / 4;
  }
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

// The values of the 16 possible elements of float4.
static constexpr float kFloat4Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
static constexpr NibbleValues kFloat4Table = nibble_values(kFloat4Values);

// The values of block scales. The index is the stored byte without its sign bit.
struct BlockScales {
  float of[128];
};
constexpr BlockScales block_scales() {
  BlockScales scales = {};
  for (int i = 0; i < 127; ++i) {
    const int exponent = i >> 3, mantissa = i & 7;
    float value = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa) / 512.0f;
    for (int e = 1; e < exponent; ++e) value *= 2.0f;
    scales.of[i] = value;
  }
  scales.of[127] = __builtin_nanf("");
  return scales;
}
static constexpr BlockScales kBlockScales = block_scales();

// float4. A load has two blocks of 16 dims, and each block has its own scale.
struct ScaledNibbles : TabledNibbles {
  struct Raw {
    HalfPairs words[2];
    F32 scales[2];
  };
  static constexpr bool kTokenScales = false, kZeroPoints = false;
  static constexpr int kScaleBytes = 2;

  KVC_INLINE_MEMBER F32 scale_of(unsigned char byte) { return _mm256_broadcast_ss(kBlockScales.of + (byte & 127)); }
  KVC_INLINE_MEMBER Raw load(const unsigned char* p, const unsigned char* scales) {
    Raw raw;
    look_up(load_bytes(p), kFloat4Table, raw.words);
    raw.scales[0] = scale_of(scales[0]);
    raw.scales[1] = scale_of(scales[1]);
    return raw;
  }
  // n is 16. The other elements are read as 0, and o has room for their results.
  KVC_INLINE_MEMBER Raw load_first(const unsigned char* p, int, const unsigned char* scales) {
    Raw raw;
    look_up(load_first_block(p), kFloat4Table, raw.words);
    raw.scales[0] = scale_of(scales[0]);
    raw.scales[1] = zero();
    return raw;
  }
  KVC_INLINE_MEMBER F32 part(const Raw& raw, int i) {
    const HalfPairs words = raw.words[i / 2];
    return mul(i % 2 == 0 ? convert_lower(words) : convert_upper(words), raw.scales[i / 2]);
  }
  KVC_INLINE_MEMBER void spread(const Raw& raw, const Raw&, F32* out) {
    KVC_UNROLL for (int i = 0; i < kParts; ++i) out[i] = part(raw, i);
  }
};

}  // namespace kvc::kernels::KVC_TARGET

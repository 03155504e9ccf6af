// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/nibbles.h"

#include "kernels/common/hadamard.h"
#include "kernels/common/scales.h"

namespace kvc::kernels {
namespace {

// The two elements that each byte of float4 holds.
struct ElementPairs {
  float of[256][2];
};
constexpr ElementPairs element_pairs() {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  ElementPairs pairs = {};
  for (int i = 0; i < 256; ++i) {
    for (int j = 0; j < 2; ++j) {
      const int element = i >> 4 * j & 15;
      pairs.of[i][j] = element < 8 ? kMagnitudes[element] : -kMagnitudes[element - 8];
    }
  }
  return pairs;
}
constexpr ElementPairs kElementPairs = element_pairs();

}  // namespace

void spread_row(float* row, int32_t n, int32_t block) {
  apply_rotation_signs(row, n);
  hadamard(row, n, block);
}

void gather_row(float* row, int32_t n, int32_t block) {
  hadamard(row, n, block);
  apply_rotation_signs(row, n);
  const float factor = 1.0f / static_cast<float>(block);  // exact, because block is a power of two
  for (int32_t d = 0; d < n; ++d) row[d] *= factor;
}

float quantise_nibbles(const float* row, int32_t n, unsigned char* target) {
  float least = row[0], largest = row[0];
  uint32_t magnitude = 0;  // as float32 bits, which are largest for an infinity or a NaN
  for (int32_t d = 0; d < n; ++d) {
    const uint32_t bits = float_bits(row[d]) & 0x7fffffffu;
    magnitude = bits > magnitude ? bits : magnitude;
    least = row[d] < least ? row[d] : least;
    largest = row[d] > largest ? row[d] : largest;
  }
  const NibbleScale scale = nibble_scale(least, magnitude < 0x7f800000u ? largest : __builtin_nanf(""));
  store_nibbles(row, n, scale, target);
  return scale.stored;
}

void quantise_blocks(const float* row, int32_t n, float head_scale, unsigned char* target) {
  store_blocks(row, n, head_scale, target);
}

void dequantise_blocks(const unsigned char* elements, const unsigned char* scales, int32_t n, float* row) {
  for (int32_t begin = 0; begin < n; begin += kBlockDims) {
    const float scale = block_scale(scales[begin / kBlockDims]);
    for (int32_t i = begin; i < begin + kBlockDims; i += 2) {
      row[i] = kElementPairs.of[elements[i / 2]][0] * scale;
      row[i + 1] = kElementPairs.of[elements[i / 2]][1] * scale;
    }
  }
}

}  // namespace kvc::kernels

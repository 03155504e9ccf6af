// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/nibbles.h"

#include "kernels/common/hadamard.h"
#include "kernels/common/scales.h"

namespace kvc::kernels {

void spread_row(float* row, int32_t n, int32_t block) {
  apply_rotation_signs(row, n);
  hadamard(row, n, block);
}

void gather_row(float* row, int32_t n, int32_t block) {
  hadamard(row, n, block);
  apply_rotation_signs(row, n);
  const float factor = 1.0f / static_cast<float>(block);  // a power of two
  for (int32_t d = 0; d < n; ++d) row[d] *= factor;
}

float quantise_nibbles(const float* row, int32_t n, unsigned char* target) {
  float least = row[0], largest = row[0];
  uint32_t magnitude = 0;  // its bits: an infinity or a NaN has the largest
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

}  // namespace kvc::kernels

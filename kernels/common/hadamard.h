// The rotation of rows that are stored with 4 bits (KVC_BACKEND_ENCODING_ROTATED). It spreads the few large dims of a
// row over all its dims, so that 16 levels lose less.
//
// Row x becomes H (s x): s are fixed signs, and H has the Hadamard matrix of size b on its diagonal, without a factor.
// H H = b, so s H y / b undoes it. Scores are sums over all dims, so q . k = (H s q) . (H s k) / b. Kernels rotate q,
// and undo the rotation in the sum of V.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/stored_format.h"

namespace kvc::kernels {

// Head dims are multiples of this. Smaller blocks would spread nothing.
constexpr int32_t kRotatedMultiple = 16;
constexpr int32_t kMaxRotatedDims = 2048;  // that have signs

// Signs of all dims that a head may have, a bit each: 1 is minus. Bit d is the highest bit of the (d + 1)-th number of
// the generator x ^= x << 13, x ^= x >> 17, x ^= x << 5 of 32 bits, which begins at 0x9e3779b9.
struct RotationSigns {
  uint32_t words[kMaxRotatedDims / 32];
};
constexpr RotationSigns make_rotation_signs() {
  RotationSigns signs = {};
  uint32_t x = 0x9e3779b9u;
  for (int d = 0; d < kMaxRotatedDims; ++d) {
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    signs.words[d / 32] |= (x >> 31) << (d % 32);
  }
  return signs;
}

KVC_HOST_DEVICE void apply_rotation_signs(float* row, int32_t dims) {
  constexpr RotationSigns kSigns = make_rotation_signs();
  for (int32_t d = 0; d < dims; ++d) {
    row[d] = float_from_bits(float_bits(row[d]) ^ (kSigns.words[d / 32] >> (d % 32)) << 31);
  }
}

// The size of a block: the largest power of two that divides the dims of a row, and of V where V is a part of K. 0 if
// rows are not rotated.
KVC_HOST_DEVICE int32_t rotation_block(const kvc_backend_layer& layer, int32_t dims) {
  if (!has_rotated_rows(layer.format)) return 0;
  const int32_t all = has_latent_rows(layer) ? layer.head_dim | layer.v_head_dim : dims;
  return all & -all;
}

// Multiplies each block of a row by the Hadamard matrix. Each sum is rounded to float32, and neighbours are added
// first.
KVC_HOST_DEVICE void hadamard(float* row, int32_t dims, int32_t block) {
  for (int32_t apart = 1; apart < block; apart *= 2) {
    for (int32_t begin = 0; begin < dims; begin += 2 * apart) {
      for (int32_t d = begin; d < begin + apart; ++d) {
        const float a = row[d], b = row[d + apart];
        row[d] = a + b;
        row[d + apart] = a - b;
      }
    }
  }
}

}  // namespace kvc::kernels

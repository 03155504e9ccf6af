// Rows of uint4 are stored rotated (KVC_BACKEND_ENCODING_ROTATED). This rotation is not RoPE. It spreads each large dim
// of a row over all dims of a block, so that rounding to 16 levels loses less.
//
// A row x becomes H (s x). s has a fixed sign for each dim. H is block-diagonal. Each block is the Hadamard matrix of
// size b x b, with entries 1 and -1. H is symmetric and H H = b I, so the inverse of y = H (s x) is x = s (H y) / b.
//
// For the same reason, q . k = (H s q) . (H s k) / b. Therefore kernels rotate q, and use K and V as they are stored.
// The sum over V is then rotated too, and kernels rotate the output back.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/stored_format.h"

namespace kvc::kernels {

// In a layer with rotated rows, head dims are multiples of this number, so b is at least this number. Smaller blocks
// would hardly spread the large dims.
constexpr int32_t kRotatedMultiple = 16;
constexpr int32_t kMaxRotatedDims = 2048;  // the number of dims for which a sign is defined

// The sign of dim d is bit d % 32 of words[d / 32], and 1 means minus. The signs come from a generator of 32-bit
// numbers. Number 0 is 0x9e3779b9. The generator computes each next number as make_rotation_signs does. The sign of dim
// d is the highest bit of number d + 1.
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

// Returns element d of a row, multiplied by the sign of the dim.
KVC_HOST_DEVICE float with_rotation_sign(const RotationSigns& signs, float x, int32_t d) {
  return float_from_bits(float_bits(x) ^ (signs.words[d / 32] >> (d % 32)) << 31);
}

// Multiplies each element of a row by the sign of its dim. Only code of the host calls this function. CUDA kernels have
// a copy of the signs in device memory.
[[maybe_unused]] static inline void apply_rotation_signs(float* row, int32_t dims) {
  constexpr RotationSigns kSigns = make_rotation_signs();
  for (int32_t d = 0; d < dims; ++d) row[d] = with_rotation_sign(kSigns, row[d], d);
}

// Returns the size b of a block, or 0 if rows are not rotated. b is the largest power of two that divides `dims`. In a
// layer with MLA rows, b divides the dims of K and the dims of V, because V is a part of K's row.
KVC_HOST_DEVICE int32_t rotation_block(const kvc_backend_layer& layer, int32_t dims) {
  if (!has_rotated_rows(layer.format)) return 0;
  const int32_t all = has_latent_rows(layer) ? layer.head_dim | layer.v_head_dim : dims;
  return all & -all;
}

// Multiplies each block of a row by the Hadamard matrix. Pairs of neighbouring elements are combined first, and then
// pairs that are 2, 4, ... elements apart. Each sum is rounded to float32, so the order determines the stored bits.
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

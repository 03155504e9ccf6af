// Quantises rows to 4 bits, with the same bits as the CPU. A warp stores a row. element(d) returns dim d of the row, as
// float32.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/scales.h"
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// Stores a row of uint4. row: [dims] in shared memory. Returns the scale to store. block: the size of a block of the
// rotation (kernels/common/hadamard.h).
template <class Element>
__device__ __forceinline__ float store_nibbles_by_warp(const Element& element, int32_t dims, int32_t block, float* row,
                                                       unsigned char* target, int32_t lane) {
  for (int32_t d = lane; d < dims; d += kWarpSize) row[d] = element(d);
  spread_by_warp(row, dims, block, lane);
  float least = row[0], largest = row[0];
  uint32_t magnitude = 0;  // as float32 bits, which are largest for an infinity or a NaN
  for (int32_t d = lane; d < dims; d += kWarpSize) {
    const uint32_t bits = float_bits(row[d]) & 0x7fffffffu;
    magnitude = bits > magnitude ? bits : magnitude;
    least = fminf(least, row[d]);
    largest = fmaxf(largest, row[d]);
  }
  magnitude = warp_max(magnitude);
  least = -warp_max(-least);
  largest = warp_max(largest);
  const NibbleScale scale = nibble_scale(least, magnitude < 0x7f800000u ? largest : NAN);
  for (int32_t i = lane; i < dims / 2; i += kWarpSize) {
    target[i] = static_cast<unsigned char>(nibble_of(row[2 * i], scale) | nibble_of(row[2 * i + 1], scale) << 4);
  }
  return scale.stored;
}

// Stores a row of float4, and after it the scales of its blocks. Half a warp computes a block.
template <class Element>
__device__ __forceinline__ void store_blocks_by_warp(const Element& element, int32_t dims, float head_scale,
                                                     unsigned char* target, int32_t lane) {
  static_assert(kWarpSize % kernels::kBlockDims == 0);
#pragma unroll 1
  for (int32_t begin = 0; begin < dims; begin += kWarpSize) {
    const int32_t d = begin + lane;
    const bool there = d < dims;
    const float quotient = there ? element(d) / head_scale : 0.0f;
    uint32_t magnitude = float_bits(quotient) & 0x7fffffffu;
#pragma unroll
    for (int lanes = kernels::kBlockDims / 2; lanes > 0; lanes /= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, magnitude, lanes);
      magnitude = other > magnitude ? other : magnitude;
    }
    const E4m3 scale = scale_of_block(magnitude);
    const uint32_t own = element_of_block(quotient, scale).bits, next = __shfl_xor_sync(kAllLanes, own, 1);
    if (!there) continue;
    if (lane % 2 == 0) target[d / 2] = static_cast<unsigned char>(own | next << 4);
    if (lane % kernels::kBlockDims == 0) target[dims / 2 + d / kernels::kBlockDims] = scale.bits;
  }
}

}  // namespace kvc::kernels::cuda

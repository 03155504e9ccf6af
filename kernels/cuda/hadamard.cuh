// The rotation of rows that are stored with 4 bits (kernels/common/hadamard.h). A warp rotates a row in shared memory.
// The sums have the same order as on the CPU, so every backend stores the same bits.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/hadamard.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

__device__ constexpr RotationSigns kRotationSigns = make_rotation_signs();

__device__ __forceinline__ float with_sign(float x, int32_t d) { return with_rotation_sign(kRotationSigns, x, d); }

// Warp: multiplies each block of a row by the Hadamard matrix. Before the call, each lane may write a part of the row.
// After the call, each lane may read the whole row.
__device__ __forceinline__ void hadamard_by_warp(float* row, int32_t dims, int32_t block, int32_t lane) {
#pragma unroll 1
  for (int32_t apart = 1; apart < block; apart *= 2) {
    __syncwarp();
#pragma unroll 1
    for (int32_t i = lane; i < dims / 2; i += kWarpSize) {
      const int32_t d = i + (i & -apart);  // pair i is the dims d and d + apart
      const float a = row[d], b = row[d + apart];
      row[d] = a + b;
      row[d + apart] = a - b;
    }
  }
  __syncwarp();
}

// Warp: multiplies a row of kEach * 32 dims, which is one block, by the Hadamard matrix. Element i of a lane is dim i *
// 32 + lane.
template <int kEach>
__device__ __forceinline__ void hadamard_of_lanes(float (&x)[kEach], int32_t lane) {
#pragma unroll
  for (int apart = 1; apart < kWarpSize; apart *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, x[i], apart);
      x[i] = (lane & apart) != 0 ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int apart = 1; apart < kEach; apart *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if ((i & apart) != 0) continue;
      const float a = x[i], b = x[i + apart];
      x[i] = a + b;
      x[i + apart] = a - b;
    }
  }
}

// Warp: rotates a row to the form in which it is stored.
__device__ __forceinline__ void spread_by_warp(float* row, int32_t dims, int32_t block, int32_t lane) {
  __syncwarp();
  for (int32_t d = lane; d < dims; d += kWarpSize) row[d] = with_sign(row[d], d);
  hadamard_by_warp(row, dims, block, lane);
}

// Warp: the inverse of spread_by_warp.
__device__ __forceinline__ void gather_by_warp(float* row, int32_t dims, int32_t block, int32_t lane) {
  hadamard_by_warp(row, dims, block, lane);
  const float factor = 1.0f / static_cast<float>(block);  // exact, because block is a power of two
  for (int32_t d = lane; d < dims; d += kWarpSize) row[d] = with_sign(row[d], d) * factor;
  __syncwarp();
}

}  // namespace kvc::kernels::cuda

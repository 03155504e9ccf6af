// What the threads of a warp or block do together, and the block's shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

namespace kvc::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
// Without opting in to more, a block has so much shared memory on every device.
constexpr int64_t kMaxSharedBytes = 48 * 1024;

__device__ __forceinline__ unsigned char* shared_bytes() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
#else
  return cuda_emulation::shared_memory();
#endif
}

// NaN is passed over, unless all are.
__device__ __forceinline__ float warp_max(float x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
  return x;
}

__device__ __forceinline__ uint32_t warp_max(uint32_t x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, x, lanes);
    x = x > other ? x : other;
  }
  return x;
}

__device__ __forceinline__ float warp_sum(float x) {
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
  return x;
}

}  // namespace kvc::kernels::cuda

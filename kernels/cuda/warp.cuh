// Operations of all threads of a warp or block, and the size of a block's shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

namespace kvc::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
// Shared memory that a block has on every device without opting in to more: 48 KiB. An image may count the system's 1
// KiB among them.
constexpr int64_t kMaxSharedBytes = 47 * 1024;

__device__ __forceinline__ unsigned char* shared_bytes() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
#else
  return cuda_emulation::shared_memory();
#endif
}

// Skips NaN, unless all values are NaN.
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

// For a block of kThreads: returns the sum over the threads before this one, and sets *total to the sum over all. sums:
// [2 * kThreads], in shared memory.
template <int kThreads, class T>
__device__ __forceinline__ T sum_before(T value, T* sums, T* total) {
  const int thread = static_cast<int>(threadIdx.x);
  sums[thread] = value;
  __syncthreads();
  int from = 0;
  for (int step = 1; step < kThreads; step *= 2, from = kThreads - from) {
    sums[kThreads - from + thread] = sums[from + thread] + (thread >= step ? sums[from + thread - step] : 0);
    __syncthreads();
  }
  *total = sums[from + kThreads - 1];
  const T before = sums[from + thread] - value;
  __syncthreads();
  return before;
}

}  // namespace kvc::kernels::cuda

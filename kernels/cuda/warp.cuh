// What the threads of a warp or block do together, and the block's shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

namespace kvc::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
// Without opting in to more, a block has so much shared memory on every device: 48 KiB, of which an image may count the
// system's kilobyte as its own.
constexpr int64_t kMaxSharedBytes = 47 * 1024;

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

// Of a block of kThreads: the sum of the threads before this one, and of all in *total. sums: [2 * kThreads], the
// block's.
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

// Operations of all threads of a warp or block, and access to the shared memory of a block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

namespace kvc::kernels::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xffffffffu;
// Bytes of shared memory that a block can use on every device without opting in to more. The limit is 48 KiB, but on
// sm_90 and later, 1 KiB that the system reserves may be part of it.
constexpr int64_t kMaxSharedBytes = 47 * 1024;

// For device functions that are rarely needed. Their instructions lie apart from those of the kernel, so that the
// kernel reads fewer instructions from memory before its first copies begin.
#if defined(__CUDACC__)
#define KVC_OUT_OF_LINE inline __device__ __noinline__
#else
#define KVC_OUT_OF_LINE inline
#endif

__device__ __forceinline__ unsigned char* shared_bytes() {
#if defined(__CUDACC__)
  extern __shared__ __align__(16) unsigned char bytes[];
  return bytes;
#else
  return cuda_emulation::shared_memory();
#endif
}

// Programmatic dependent launch: a launch attribute lets a kernel start before the previous kernel of the stream has
// ended. The kernel can start when each thread block of the previous kernel has called let_next_start or has ended.
// Every thread of the kernel must call wait_for_previous before it reads what the previous kernel writes. Threads that
// read nothing must call it too. The next kernel waits only until this kernel has ended, and relies on the end of all
// earlier kernels. Without the attribute, both functions do nothing.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The largest x of the warp. NaN is ignored, unless all values are NaN.
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

// Returns the sum of `value` over all threads of the block with a lower index than this thread. Sets *total to the sum
// over all threads. The block has kThreads threads, and all of them call the function. sums: [2 * kThreads], in shared
// memory.
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

// The instructions of the tensor cores, and the instructions that load their operands. Each function has at most one
// instruction. attend/decode/instructions.cuh has further instructions. Without nvcc, each function calls its emulation
// (tests/cuda/emulation/warp_matrix.h). attend/mma/layout.h defines which lane holds which element. "Warp:" means that
// all lanes of a warp call the function.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/mma/layout.h"

namespace kvc::kernels::cuda {

#if defined(__CUDACC__)

__device__ __forceinline__ uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Warp: c += A B.
__device__ __forceinline__ void multiply(F16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(Bf16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Warp: loads four 8 x 8 matrices from shared memory. row: the address that the lane supplies.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// Starts a copy of 16 aligned bytes from global to shared memory. If `there` is false, the copy writes zeros.
__device__ __forceinline__ void begin_copy(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(there ? 16 : 0)
               : "memory");
}
// Starts a copy of 8 aligned bytes in the same way.
__device__ __forceinline__ void begin_half_copy(void* shared, const void* global, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(there ? 8 : 0)
               : "memory");
}
// Starts a copy of a float in the same way.
__device__ __forceinline__ void begin_float_copy(float* shared, const void* global, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(there ? 4 : 0)
               : "memory");
}
// Closes a group of copies: all that this thread started since it closed the previous group.
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all groups of this thread have arrived, except the last kGroups groups. Other threads may read the data
// after a barrier.
template <int kGroups>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Rounds two floats to a pair of 16-bit elements. low becomes the lower half.
__device__ __forceinline__ uint32_t pack(F16, float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ uint32_t pack(Bf16, float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// a * b + c of both halves, rounded once. Subnormals are kept.
__device__ __forceinline__ uint32_t multiply_add(F16, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t pair;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
}
__device__ __forceinline__ uint32_t multiply_add(Bf16, uint32_t a, uint32_t b, uint32_t c) {
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
}

// 2^x with 22 correct bits. Subnormal results are 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Hides from the compiler how x was computed. So the compiler computes values that depend on x where they are used,
// instead of keeping them in registers through a loop.
__device__ __forceinline__ int32_t hidden(int32_t x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Returns four bytes, chosen among the bytes of a (0 to 3) and b (4 to 7). Nibble i of the selector is the number of
// byte i.
__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

#else

inline int32_t hidden(int32_t x) { return x; }
using cuda_emulation::begin_copy;
using cuda_emulation::begin_float_copy;
using cuda_emulation::begin_half_copy;
using cuda_emulation::close_copies;
using cuda_emulation::fast_exp2;
using cuda_emulation::load_matrices;
using cuda_emulation::load_transposed;
using cuda_emulation::multiply;
using cuda_emulation::multiply_add;
using cuda_emulation::pack;
using cuda_emulation::pick_bytes;
using cuda_emulation::wait_copies;

#endif

}  // namespace kvc::kernels::cuda

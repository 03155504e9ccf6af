// Hopper's instructions (sm_90a) for attention: products of a warpgroup, barriers in shared memory that count bytes,
// and TMA. Each function wraps one instruction, except hold_results, which has none. Without nvcc, each function calls
// its emulation (tests/cuda/emulation/warpgroup.h), which also checks the rules of the instruction.
// attend/wgmma/layout.h describes the operands. "Warpgroup:" means that all threads of four warps call the function;
// the number of the first warp is a multiple of four.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/wgmma/layout.h"

namespace kvc::kernels::cuda {

#if defined(__CUDACC__)

// ---- Barriers: 8 bytes in shared memory --------------------------------------------------------
// A phase of a barrier ends when `count` threads have arrived and all expected bytes have arrived. A thread that waits
// identifies the phase by its parity. The first phase has parity 0. On a new barrier, a wait with parity 1 returns at
// once.

__device__ __forceinline__ void init_barrier(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
// Makes new barriers visible to TMA. The thread that initialised them calls it before __syncthreads.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_phase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra over;\nbra again;\nover:\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Waits until kThreads threads, in whole warps, have called it, or notify_threads_of, with the same number. Numbers are
// 1 to 15. Number 0 is the barrier of __syncthreads.
template <int kThreads>
__device__ __forceinline__ void sync_threads_of(int number) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}
// Arrives at the barrier of sync_threads_of without waiting. The calling threads count among the kThreads threads.
template <int kThreads>
__device__ __forceinline__ void notify_threads_of(int number) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// ---- TMA ----------------------------------------------------------------------------------------

// Starts the copy of a box to shared memory. The barrier counts the box's bytes as they arrive. c0 to c3: coordinates
// of the box's first element; c0 is the contiguous dimension.
__device__ __forceinline__ void begin_box(void* shared, const CUtensorMap* map, uint64_t* barrier, int32_t c0,
                                          int32_t c1, int32_t c2, int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(map)) : "memory");
}
// Makes the thread's writes to shared memory visible to products and to TMA after the next barrier.
__device__ __forceinline__ void publish_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- Products -------------------------------------------------------------------------------------
// Products run asynchronously. Results may be read, and operands overwritten, only after a wait for the group of the
// products.

// Warpgroup: must be called after other code accessed registers of results or operands, and before the next product
// that uses these registers.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Warpgroup: closes a group, which has all products that were started since the previous group.
__device__ __forceinline__ void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Warpgroup: waits for all groups except the last kGroups groups.
template <int kGroups>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Stops the compiler from moving accesses to results across this point. It is needed after a wait, and before products
// whose result registers were changed.
template <int kCount>
__device__ __forceinline__ void hold_results(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Converts a pair of float16 to two floats, exactly.
__device__ __forceinline__ void floats_of_pair(uint32_t pair, float* low, float* high) {
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.f32.f16 %0, l;\ncvt.f32.f16 %1, h;\n}"
      : "=f"(*low), "=f"(*high)
      : "r"(pair));
}

// take_registers increases, and give_registers decreases, the number of registers of each thread of the warpgroup. The
// sum over the block must not exceed the block's registers at launch.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

#define KVC_REGISTERS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define KVC_REGISTERS_16(d, i) \
  KVC_REGISTERS_4(d, i), KVC_REGISTERS_4(d, i + 4), KVC_REGISTERS_4(d, i + 8), KVC_REGISTERS_4(d, i + 12)
#define KVC_REGISTERS_32(d) KVC_REGISTERS_16(d, 0), KVC_REGISTERS_16(d, 16)
#define KVC_REGISTERS_64(d) KVC_REGISTERS_32(d), KVC_REGISTERS_16(d, 32), KVC_REGISTERS_16(d, 48)
#define KVC_REGISTERS_128(d)                                                                      \
  KVC_REGISTERS_64(d), KVC_REGISTERS_16(d, 64), KVC_REGISTERS_16(d, 80), KVC_REGISTERS_16(d, 96), \
      KVC_REGISTERS_16(d, 112)

// The registers of d, as the assembly text of a product names them.
#define KVC_SUMS_32                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define KVC_SUMS_64                                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define KVC_SUMS_128                                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"

// multiply_shared     warpgroup: d = A B, or d += A B if `adds`. A and B are in shared memory, K-major.
// multiply_columns    warpgroup: d += A B. A and B are in shared memory; A is K-major, and B is MN-major.
// multiply_registers  warpgroup: d += A B. A is in registers. B is in shared memory, MN-major.
// i0 to i4: the names of the operands after the registers of d.
#define KVC_PRODUCTS(Type, type, shape, count, i0, i1, i2, i3, i4)                                                   \
  __device__ __forceinline__ void multiply_shared(Type, float(&d)[count], uint64_t a, uint64_t b, bool adds) {       \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " i2 ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type     \
                 "." type " " KVC_SUMS_##count ", " i0 ", " i1 ", p, 1, 1, 0, 0;\n}\n"                               \
                 : KVC_REGISTERS_##count(d)                                                                          \
                 : "l"(a), "l"(b), "r"(adds ? 1 : 0));                                                               \
  }                                                                                                                  \
  __device__ __forceinline__ void multiply_columns(Type, float(&d)[count], uint64_t a, uint64_t b) {                 \
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type "." type \
                 " " KVC_SUMS_##count ", " i0 ", " i1 ", p, 1, 1, 0, 1;\n}\n"                                        \
                 : KVC_REGISTERS_##count(d)                                                                          \
                 : "l"(a), "l"(b));                                                                                  \
  }                                                                                                                  \
  __device__ __forceinline__ void multiply_registers(Type, float(&d)[count], const uint32_t(&a)[4], uint64_t b) {    \
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." shape ".f32." type "." type \
                 " " KVC_SUMS_##count ", {" i0 ", " i1 ", " i2 ", " i3 "}, " i4 ", p, 1, 1, 1;\n}\n"                 \
                 : KVC_REGISTERS_##count(d)                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                              \
  }
#define KVC_PRODUCTS_OF(Type, type)                                             \
  KVC_PRODUCTS(Type, type, "m64n64k16", 32, "%32", "%33", "%34", "%35", "%36")  \
  KVC_PRODUCTS(Type, type, "m64n128k16", 64, "%64", "%65", "%66", "%67", "%68") \
  KVC_PRODUCTS(Type, type, "m64n256k16", 128, "%128", "%129", "%130", "%131", "%132")
KVC_PRODUCTS_OF(F16, "f16")
KVC_PRODUCTS_OF(Bf16, "bf16")

#undef KVC_PRODUCTS_OF
#undef KVC_PRODUCTS
#undef KVC_SUMS_32
#undef KVC_SUMS_64
#undef KVC_SUMS_128
#undef KVC_REGISTERS_4
#undef KVC_REGISTERS_16
#undef KVC_REGISTERS_32
#undef KVC_REGISTERS_64
#undef KVC_REGISTERS_128

#else

inline void floats_of_pair(uint32_t pair, float* low, float* high) {
  *low = to_float(F16{static_cast<uint16_t>(pair)});
  *high = to_float(F16{static_cast<uint16_t>(pair >> 16)});
}
using cuda_emulation::arrive;
using cuda_emulation::arrive_expecting;
using cuda_emulation::begin_box;
using cuda_emulation::begin_products;
using cuda_emulation::close_products;
using cuda_emulation::give_registers;
using cuda_emulation::hold_results;
using cuda_emulation::init_barrier;
using cuda_emulation::multiply_columns;
using cuda_emulation::multiply_registers;
using cuda_emulation::multiply_shared;
using cuda_emulation::notify_threads_of;
using cuda_emulation::prefetch_map;
using cuda_emulation::publish_barriers;
using cuda_emulation::publish_writes;
using cuda_emulation::shared_address;
using cuda_emulation::sync_threads_of;
using cuda_emulation::take_registers;
using cuda_emulation::wait_phase;
using cuda_emulation::wait_products;

#endif

}  // namespace kvc::kernels::cuda

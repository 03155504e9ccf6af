// The emulation of kernels/cuda/attend/wgmma/instructions.cuh, by the layouts of kernels/cuda/wgmma_layout.h.
//
// A product of a warpgroup is computed when its group is waited for. Until then its results hold NaN. The test ends
// with a message if a thread meanwhile writes to the results or to an operand in registers, or writes to operands in
// shared memory before all warps have waited. It also ends if begin_products is missing before a product. Operands are
// read as the asynchronous proxy sees shared memory. It sees what TMA wrote. It sees what ordinary stores wrote only if
// all threads of a warp called publish_writes before the next barrier at which they arrived (all threads of the block,
// if it is a barrier of the block). It sees what an asynchronous copy within the block wrote only if, in addition, the
// thread that started the copy has waited for it and called publish_writes after that. Everything else there is NaN or
// old. The boxes of TMA arrive at once, or, in every
// other pair of launches, only when all threads wait, oldest or newest first.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cuda.h"
#include "warp_matrix.h"

namespace cuda_emulation {

// Lets other threads run until the condition is true.
void wait_until(const std::function<bool()>& condition);

uint32_t shared_address(const void* shared);

void init_barrier(uint64_t* barrier, uint32_t count);
void publish_barriers();
void arrive(uint64_t* barrier);
void arrive_expecting(uint64_t* barrier, uint32_t bytes);
void wait_phase(uint64_t* barrier, uint32_t parity);
void meet_some(int number, int threads, bool waits);
template <int kThreads>
void sync_threads_of(int number) {
  meet_some(number, kThreads, true);
}
template <int kThreads>
void notify_threads_of(int number) {
  meet_some(number, kThreads, false);
}

void begin_box(void* shared, const CUtensorMap* map, uint64_t* barrier, int32_t c0, int32_t c1, int32_t c2, int32_t c3);
inline void prefetch_map(const CUtensorMap*) {}
void publish_writes();
// emulation.cc calls these for an asynchronous copy within the block: when a thread starts it, and after it waited.
void hold_copy(const void* shared);
void arrive_copy(const void* shared);

// A product, of any size and type.
struct Product {
  bool a_shared, b_by_keys;  // b_by_keys: B is MN-major
  uint64_t a, b;             // descriptors
  int columns;
  bool is_f16, adds;
};
void begin_products();
void close_products();
void wait_for_products(int groups);
void issue_product(const Product& product, float* d, const uint32_t* a);

template <int kGroups>
void wait_products() {
  wait_for_products(kGroups);
}
template <int kCount>
void hold_results(float (&)[kCount]) {}
template <class T, int kCount>
void multiply_shared(T, float (&d)[kCount], uint64_t a, uint64_t b, bool adds) {
  issue_product({true, false, a, b, kCount * 2, std::is_same_v<T, F16>, adds}, d, nullptr);
}
template <class T, int kCount>
void multiply_columns(T, float (&d)[kCount], uint64_t a, uint64_t b) {
  issue_product({true, true, a, b, kCount * 2, std::is_same_v<T, F16>, true}, d, nullptr);
}
template <class T, int kCount>
void multiply_registers(T, float (&d)[kCount], const uint32_t (&a)[4], uint64_t b) {
  issue_product({false, true, 0, b, kCount * 2, std::is_same_v<T, F16>, true}, d, a);
}
template <int kRegisters>
void take_registers() {}
template <int kRegisters>
void give_registers() {}

// emulation.cc calls these for the running block: at its begin; when a thread and all others are stuck at the block's
// barrier; when all threads wait (true: something arrived, or ended); and at its end.
void begin_warpgroups(int threads, unsigned char* shared, size_t bytes, bool at_once, bool newest_first);
void pass_block_barrier();
bool deliver();
void end_warpgroups();

}  // namespace cuda_emulation

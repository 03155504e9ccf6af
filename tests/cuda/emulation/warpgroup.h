// The emulation of kernels/cuda/attend/wgmma/instructions.cuh, by the layouts of kernels/cuda/wgmma_layout.h.
//
// Products of a warpgroup are computed when their group is waited for. Until then results hold NaN; who has written to
// them meanwhile, or to the operand in registers, or, before all warps have waited, to the operands in shared memory,
// ends the test with a message, and so does a product in front of which begin_products is missing. Operands are read
// as the asynchronous proxy sees shared memory: what TMA wrote, and what ordinary stores wrote if all
// threads of a warp (at the block's barrier: of the block) called publish_writes before the barrier at which they
// arrived next. All else there is NaN, or old. Boxes arrive at once, or, in every other pair of launches, not before
// all threads wait, oldest or newest first.
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
void sync_some(int number, int threads);
template <int kThreads>
void sync_threads_of(int number) {
  sync_some(number, kThreads);
}

void begin_box(void* shared, const CUtensorMap* map, uint64_t* barrier, int32_t c0, int32_t c1, int32_t c2, int32_t c3);
inline void prefetch_map(const CUtensorMap*) {}
void publish_writes();

// A product, of any size and type.
struct Product {
  bool a_shared, b_by_keys;  // b_by_keys: MN-major
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

// What emulation.cc tells of the running block: its begin, that a thread is stuck at the block's barrier with all
// others, that all threads wait (true: something arrived, or ended), its end.
void begin_warpgroups(int threads, unsigned char* shared, size_t bytes, bool at_once, bool newest_first);
void pass_block_barrier();
bool deliver();
void end_warpgroups();

}  // namespace cuda_emulation

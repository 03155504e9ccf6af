// The words in which rows are copied, and the address of a slot in a pool.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct alignas(16) Word16 {
  uint64_t low, high;
};

// The address, the strides and the row size of a pool, combined by bitwise or. All are in bytes.
inline uint64_t places_of_pool(const kvc_backend_pool& pool) {
  const int64_t all = pool.page_stride_bytes | pool.head_stride_bytes | pool.slot_stride_bytes | pool.row_bytes;
  return reinterpret_cast<uintptr_t>(pool.data) | static_cast<uint64_t>(all);
}

// The offset of slot `slot` from the begin of a pool, in bytes. Nearly all slot numbers fit in 32 bits, and a 32-bit
// division is faster.
__device__ __forceinline__ int64_t slot_bytes(int64_t slot, int32_t page_size, int64_t page_stride,
                                              int64_t slot_stride) {
  if (slot <= INT32_MAX) {
    const uint32_t page = static_cast<uint32_t>(slot) / static_cast<uint32_t>(page_size);
    return page * page_stride + static_cast<int32_t>(static_cast<uint32_t>(slot) - page * page_size) * slot_stride;
  }
  return slot / page_size * page_stride + slot % page_size * slot_stride;
}

// Calls run(Word{}) with the longest word, of 16, 4 or 1 bytes, that divides all addresses, strides and sizes. places:
// these numbers in bytes, combined by bitwise or.
template <class Run>
auto with_words(uint64_t places, const Run& run) {
  if (places % 16 == 0) return run(Word16{});
  if (places % 4 == 0) return run(uint32_t{});
  return run(static_cast<unsigned char>(0));
}

}  // namespace kvc::kernels::cuda

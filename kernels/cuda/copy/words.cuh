// The longest words that something can be moved in.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct alignas(16) Word16 {
  uint64_t low, high;
};

// Of rows of a pool: its address and strides, and what else they go by, in elements, one or-ed to the other.
inline uint64_t places_of_pool(const kvc_backend_pool& pool, int64_t elements, int64_t element_bytes) {
  const int64_t all = pool.page_stride | pool.head_stride | pool.slot_stride | elements;
  return reinterpret_cast<uintptr_t>(pool.data) | static_cast<uint64_t>(all * element_bytes);
}

// Calls run(Word{}) with words of 16, 4 or 1 bytes: the longest that divide `places`, all addresses, strides and sizes
// in bytes, one or-ed to the other.
template <class Run>
auto with_words(uint64_t places, const Run& run) {
  if (places % 16 == 0) return run(Word16{});
  if (places % 4 == 0) return run(uint32_t{});
  return run(static_cast<unsigned char>(0));
}

}  // namespace kvc::kernels::cuda

// Reads a caller's index array on the device. The array may hold any numbers, so the caller of these functions checks
// each value and ignores bad ones.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

__device__ __forceinline__ int64_t index_at(const kvc_backend_indexes& array, int64_t i) {
  const int64_t at = i * array.stride;
  if (array.data == nullptr) return array.value + at;
  return array.wide != 0 ? static_cast<const int64_t*>(array.data)[at] : static_cast<const int32_t*>(array.data)[at];
}

__device__ __forceinline__ bool is_within(int64_t value, int64_t least, int64_t most) {
  return value >= least && value <= most;
}

}  // namespace kvc::kernels::cuda

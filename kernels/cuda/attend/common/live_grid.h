// The size of the grid of a call that a graph may replay.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

// A step of a graph is launched for its capacity, but mostly has few blocks. In some kernels, a thread block computes
// several blocks of the plan, one after another (count_blocks). For these kernels, *blocks is reduced to the number of
// thread blocks that can be resident at once. live: the number of blocks that have work, in device memory; null: the
// call is not part of a graph.
inline kvc_status cap_blocks(const Device& device, const int64_t* live, const void* kernel, int threads,
                             int64_t shared_bytes, int64_t* blocks, kvc_error* error) {
  if (live == nullptr) return KVC_OK;
  int resident = 0;
  const cudaError_t result =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, static_cast<size_t>(shared_bytes));
  const kvc_status status = check(result, "cudaOccupancyMaxActiveBlocksPerMultiprocessor", "attend in a graph", error);
  const int64_t most = int64_t{resident > 0 ? resident : 1} * device.multiprocessors;
  if (status == KVC_OK && *blocks > most) *blocks = most;
  return status;
}

}  // namespace kvc::kernels::cuda

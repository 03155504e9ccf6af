// Copies the nodes of page lists that a step changed from the step's memory to their mirrors. A warp copies a node, a
// lane an entry.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/step.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;
static_assert(KVC_BACKEND_NODE_FANOUT == kWarpSize);

__global__ void __launch_bounds__(kThreads)
    nodes_kernel(int32_t* const* targets, const int32_t* values, int64_t count) {
  const int64_t node = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  if (node < count) targets[node][lane] = values[node * kWarpSize + lane];
}

}  // namespace

kvc_status place_nodes(int32_t* const* targets, const int32_t* values, int64_t count, void* stream, kvc_error* error) {
  return launch("changes of page lists", stream, {blocks_for(count, kWarps), 1, 1}, kThreads, 0, error, nodes_kernel,
                targets, values, count);
}

}  // namespace kvc::kernels::cuda

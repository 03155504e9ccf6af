// What the device keeps of a cache's bookkeeping: mirrors of node pools, and the index arrays of steps.
//
// A step's memory on the device holds, in this order: a header, the arrays (the core chose their places), the blocks of
// the plans, and for each plan an area for a plan that is made after the stage. A stage writes all but these areas, and
// the changed nodes, into one of kStaged pinned buffers. It enqueues one kernel, which reads that buffer (step/send.h).
// All memory is allocated by step_create, by the limits of the step. The host waits only if kStaged stages of one step
// are queued and the first is not done. The device never waits, because the caller has ordered the streams.
//
// Only steps of a graph have a header. Their arrays have fixed places by their capacities. The header has the number of
// tokens, of rows with states, of blocks and of tiles, and the plans with their addresses on the device. Kernels of a
// captured call are launched for the capacity and read the header, so a replay does the work of the current step.
// unstage sets all sizes to 0.
//
// Thread safety: stage, stage_plan and unstage alone. Any threads may read at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/step/staged_plan.h"
#include "kvcache_backend.h"

struct kvc_backend_mirror {
  const int32_t* host;  // [num_nodes, FANOUT]
  int32_t* device;      // the same shape
  int64_t num_nodes;
};

struct kvc_backend_step {
  static constexpr int kStaged = 4;

  // At the begin of the device's memory: the sizes of the current step.
  struct Sizes {
    int64_t tokens, rows;
  };
  // The places of one plan.
  struct Slot {
    kvc_backend_staged_plan staged;
    kvc::kernels::cuda::BlockCounts most;
    int64_t blocks_at;            // in a step of a graph
    int64_t late_at, late_bytes;  // the area of a plan that is made after the stage
  };

  unsigned char* device;           // without the changes, and with the areas
  unsigned char* pinned[kStaged];  // [capacity] each
  cudaEvent_t copied[kStaged];
  int64_t header_bytes, array_bytes, capacity;
  int32_t next;         // the pinned buffer of the next stage
  int32_t max_changes;  // nodes in one buffer
  Slot* slots;          // [num_slots]
  int32_t num_slots;
  int32_t max_tokens, max_rows;       // of a step of a graph; else 0
  kvc::kernels::cuda::BlockCut many;  // how blocks of many rows are cut
};

namespace kvc::kernels::cuda {

// For a step of a graph: its most tokens, and where the device has the sizes of the current step. Else 0 and null.
// step: nullable.
int32_t max_tokens_of(const kvc_backend_step* step);
const kvc_backend_step::Sizes* live_sizes_of(const kvc_backend_step* step);
const int64_t* live_tokens_of(const kvc_backend_step* step);
// Returns ORDER if the stream is being captured and the step is not of a graph, because a replay would read the arrays
// of another step.
kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

// The memory of a step on the device, and the mirrors of node pools.
//
// The device memory of a step holds, in this order: a header, the index arrays at the places that the core chose, the
// thread blocks of the plans, and an area for each plan. A plan that is made after the stage is sent to its area.
//
// stage writes the header, the arrays, the blocks and the changed nodes of page lists into one of kStaged pinned
// buffers. Then it enqueues one kernel, which reads that buffer (step/send.h). If a buffer cannot hold all changed
// nodes, stage first enqueues kernels that send some of them, from other buffers.
//
// step_create allocates all memory, by the limits of the step. The host waits only if all kStaged buffers are still in
// flight. The device does not wait, because the caller has ordered the streams.
//
// Only steps of a graph use the header. The arrays and blocks of such steps lie at fixed places. The header holds the
// sizes of the current step, the sizes of each plan, and the plans with their device addresses. Kernels of a captured
// call are launched for the capacity, and read the header. So a replay does the work of the current step. unstage sets
// all sizes to 0.
//
// Thread safety: only one thread at a time may call stage, stage_plan and unstage for a step, and no thread may read
// the step during such a call. At other times, any threads may read the step at once.
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

  // The sizes of the current step: the number of tokens, and the number of rows that have recurrent states. They lie at
  // the begin of `device`.
  struct Sizes {
    int64_t tokens, rows;
  };
  // For a step of a graph: describes the blocks that an earlier step sent to the device. They belong to `items` items,
  // which all have `queries` queries and the same heads. Most decode steps have such items. A later plan with at most
  // as many such items needs only the first of these blocks, so no blocks are sent. items = 0: the blocks are unknown.
  struct Listed {
    int64_t items;
    int32_t queries, head_begin, head_end;
    kvc::kernels::cuda::BlockCounts of_item;  // the numbers of blocks of one item
  };
  // What the step keeps for one plan.
  struct Slot {
    kvc_backend_staged_plan staged;
    Listed listed;
    kvc::kernels::cuda::BlockCounts most;
    int64_t blocks_at;            // where the blocks of the plan begin, in a step of a graph
    int64_t late_at, late_bytes;  // the area for a plan that is made after the stage
  };

  unsigned char* device;           // header, arrays, blocks and areas
  unsigned char* pinned[kStaged];  // [capacity] each: header, arrays, blocks and changed nodes
  cudaEvent_t copied[kStaged];
  int64_t header_bytes, array_bytes, capacity;
  int32_t next;         // the pinned buffer of the next stage
  int32_t max_changes;  // the largest number of changed nodes that one buffer can hold
  Slot* slots;          // [num_slots]
  int32_t num_slots;
  int32_t max_tokens, max_rows;       // the capacities of a step of a graph; else 0
  kvc::kernels::cuda::BlockCut many;  // how items are cut into blocks of many rows
};

namespace kvc::kernels::cuda {

// For a step of a graph, max_tokens_of returns the largest number of tokens of a step, and the other functions return
// where the sizes of the current step lie in device memory. For other steps, and for null, the functions return 0 or
// null.
int32_t max_tokens_of(const kvc_backend_step* step);
const kvc_backend_step::Sizes* live_sizes_of(const kvc_backend_step* step);
const int64_t* live_tokens_of(const kvc_backend_step* step);
// Returns ORDER if the stream is being captured and the step does not belong to a graph. A replay would then read the
// arrays of another step.
kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

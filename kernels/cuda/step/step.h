// What the device keeps of a cache's bookkeeping: mirrors of node pools, and the index arrays of a step.
//
// A step's memory on the device is, in this order: a header, the arrays (the core chose their places), the blocks of
// plans, the changed nodes, and for each plan an area for one that is made after the stage. A stage writes all but the
// areas into one of kStaged pinned buffers, and enqueues one copy of it and a kernel that puts the nodes in their
// places. Memory is as large as the step's limits say, from step_create on. The host waits only if kStaged copies of
// one step are queued and the first of them is not done. The device never waits, since the caller has ordered the
// streams.
//
// The header is of a graph's steps, in which every array has its place by its capacity. It has the number of tokens,
// rows with states, blocks and tiles, and the plans by their addresses on the device. Kernels of a captured call are
// launched for the capacity and read the header, so that they do the work of the step that they are replayed in.
// unstage makes all sizes 0.
//
// Thread safety: stage, stage_plan and unstage alone; everything else reads, by any threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/step/staged_plan.h"
#include "kvcache_backend.h"

struct kvc_backend_mirror {
  const int32_t* host;  // [num_nodes, FANOUT]
  int32_t* device;      // likewise
  int64_t num_nodes;
};

struct kvc_backend_step {
  static constexpr int kStaged = 4;

  // On the device, at its memory's begin: of the step that runs.
  struct Sizes {
    int64_t tokens, rows;
  };
  // A plan's place.
  struct Slot {
    kvc_backend_staged_plan staged;
    kvc::kernels::cuda::BlockCounts most;
    int64_t blocks_at;            // in a graph's step
    int64_t late_at, late_bytes;  // the area of a plan that is made after the stage
  };

  unsigned char* device;           // [capacity, and the areas]
  unsigned char* pinned[kStaged];  // [capacity]
  cudaEvent_t copied[kStaged];
  int64_t header_bytes, array_bytes, capacity;
  int32_t next;         // of the pinned buffers
  int32_t max_changes;  // nodes of one copy
  Slot* slots;          // [num_slots]
  int32_t num_slots;
  int32_t max_tokens, max_rows;       // of a graph's step; else 0
  kvc::kernels::cuda::BlockCut many;  // how the device's blocks of many rows are cut
};

namespace kvc::kernels::cuda {

// A graph's: its most tokens, and where the device has the sizes of the step that runs. Else 0 and null. step:
// nullable.
int32_t max_tokens_of(const kvc_backend_step* step);
const kvc_backend_step::Sizes* live_sizes_of(const kvc_backend_step* step);
const int64_t* live_tokens_of(const kvc_backend_step* step);
// ORDER, if the stream is being captured and the step is no graph's, since its arrays would be others in a replay.
kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error);

// step/nodes.cu: puts nodes in their places: FANOUT numbers at values + i * FANOUT to targets[i]. Both on the device.
kvc_status place_nodes(int32_t* const* targets, const int32_t* values, int64_t count, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

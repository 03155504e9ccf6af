// What the device keeps of a cache's bookkeeping: mirrors of node pools, and the index arrays of a step.
//
// A stage writes the arrays, the blocks of planned attends and the changed nodes into one of kStaged pinned buffers of
// the step, enqueues one copy of it into the step's device memory, and a kernel that puts the nodes in their places.
// Buffers are as large as the step's limits say, from step_create on. The host waits only if kStaged copies of one step
// are queued and the first of them is not done; the device never waits: the caller has ordered the streams. Calls of
// the step then find by the host's address where an array lies (staged_address).
//
// Of a graph's step every array lies by its capacity, and in front of them all a header: how many tokens, rows with
// states, blocks and tiles there are, and the rows by their device addresses. Kernels of a call that was captured are
// launched at the capacity and read those, so that they do the work of the step that they are replayed in; unstage
// makes all sizes 0.
//
// Thread safety: a stage alone; everything else reads, by any threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/step/upload.h"
#include "kvcache_backend.h"

struct kvc_backend_mirror {
  const int32_t* host;  // [num_nodes, FANOUT]
  int32_t* device;      // likewise
  int64_t num_nodes;
};

struct kvc_backend_step {
  static constexpr int kStaged = 4;

  // Host bytes [host, host + bytes) lie at `device`; sorted by host.
  struct Range {
    const char* host;
    int64_t bytes;
    const char* device;
  };
  // On the device, at its memory's begin: of the step that runs.
  struct Sizes {
    int64_t tokens, rows;
  };
  // On the device: how much of planned work there is in the step that runs.
  struct Live {
    int64_t few, many;  // blocks
    int64_t tiles;
  };
  // Blocks of `items`: those of few rows, and behind them, from most.few on in a graph's step, those of many.
  struct Blocks {
    const kvc_backend_item* items;
    const kvc::kernels::cuda::AttendBlock* blocks;
    kvc::kernels::cuda::BlockCounts count;
    // Of a graph's step, at the same addresses in every one; else null and 0.
    const kvc_backend_rows* rows_on_device;
    const Live* live;
    kvc::kernels::cuda::BlockCounts most;
    int64_t max_tiles;
    // Page lists that are arrays, as flatten_pages has them; null: none.
    const int32_t* pages;
    const int64_t* page_begin;
  };

  unsigned char* device;           // [capacity]
  unsigned char* pinned[kStaged];  // likewise
  cudaEvent_t copied[kStaged];
  int64_t capacity;
  int32_t next;         // of the pinned buffers
  int32_t max_changes;  // nodes of one copy
  Range* ranges;        // [max_ranges]
  int32_t num_ranges, max_ranges;
  Blocks* blocks;  // [max_blocks]
  int32_t num_blocks, max_blocks;
  int32_t max_tokens, max_rows;       // of a graph's step; else 0
  kvc::kernels::cuda::BlockCut many;  // how the device's blocks of many rows are cut
  int64_t header_bytes;               // of sizes; 0 before the first stage
};

namespace kvc::kernels::cuda {

// Null: not staged. step: nullable.
const void* staged_address(const kvc_backend_step* step, const void* data);
// A graph's: its most tokens, and where the device has the sizes of the step that runs. Else 0 and null. step:
// nullable.
int32_t max_tokens_of(const kvc_backend_step* step);
const kvc_backend_step::Sizes* live_sizes_of(const kvc_backend_step* step);
const int64_t* live_tokens_of(const kvc_backend_step* step);
// ORDER, if the stream is being captured and the step is no graph's: its arrays would be others in a replay.
kvc_status check_replayable(const kvc_backend_step* step, void* stream, kvc_error* error);
// The blocks of these items; null: not staged.
const kvc_backend_step::Blocks* staged_blocks(const kvc_backend_step* step, const kvc_backend_item* items);

// Where `count` elements are on the device: staged, or a piece to be sent with the call.
template <class T>
Piece piece_of(const kvc_backend_step* step, const T* source, int64_t count) {
  const void* const staged = source == nullptr ? nullptr : staged_address(step, source);
  if (staged == nullptr) return piece_of(source, count);
  return {nullptr, 0, nullptr, const_cast<void*>(staged)};
}

// step/nodes.cu: puts nodes in their places: FANOUT numbers at values + i * FANOUT to targets[i]. Both on the device.
kvc_status place_nodes(int32_t* const* targets, const int32_t* values, int64_t count, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

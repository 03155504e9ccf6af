// A plan of attention on the device: its arrays, and the thread blocks that its items become.
//
// A plan is staged once, by one of three functions:
//   - stage sends it with the arrays of its step (step/step.h);
//   - stage_plan sends a plan that was made after the stage, to memory of its slot in the step;
//   - begin_call sends all of a plan for one call without a cache (step/call_step.h).
// Each fills plan->device, and points plan->staged to a kvc_backend_staged_plan. An attend then only launches kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/fail.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/step/upload.h"
#include "kvcache_backend.h"

struct kvc_backend_staged_plan {
  // On the device: the sizes of the plan in the current step.
  struct Live {
    int64_t few, many;  // of blocks
    int64_t tiles;
  };

  // On the device. Blocks of few rows come first. Those of many rows follow them, in a step of a graph from index
  // most.few on.
  const kvc::kernels::cuda::AttendBlock* blocks;
  kvc::kernels::cuda::BlockCounts count;
  // For a plan that keeps its addresses through all steps of a graph; else null and 0. A captured call is launched for
  // the capacity. On the device it reads the sizes of the current step.
  const kvc_backend_plan* live_plan;  // a copy of the plan, with arrays on the device
  const Live* live;
  kvc::kernels::cuda::BlockCounts most;
  int64_t max_tiles;
  int32_t max_tokens;
};

namespace kvc::kernels::cuda {

// The most blocks that a plan has in any step.
BlockCounts most_blocks(const kvc_backend_plan& plan, const BlockCut& many);

// A copy of the plan for kernels.
inline kvc_backend_plan plan_on_device(const kvc_backend_plan& plan) {
  kvc_backend_plan copy = plan;
  copy.arrays = plan.device;
  copy.layer = nullptr;
  copy.staged = nullptr;
  copy.counters = nullptr;
  return copy;
}

// The arrays of a plan and its blocks, as pieces of an upload.
class PlanPieces {
 public:
  static constexpr int kMost = 18;

  explicit PlanPieces(const BlockCut& many) : many_(many) {}
  // Lists all arrays that the plan has on the host. Page lists become arrays, which are made in memory of the upload.
  // The caller holds the upload's lock until write returns.
  kvc_status list_all(kvc_backend_plan* plan, Upload* upload, kvc_error* error);
  // Lists only the work items and the blocks.
  void list_work(kvc_backend_plan* plan);
  Piece* pieces() { return pieces_; }
  int count() const { return count_; }

  // Call it after the upload's take. It writes the arrays that are made here, and fills the plan's addresses on the
  // device and `staged`.
  void write(kvc_backend_plan* plan, kvc_backend_staged_plan* staged);

 private:
  template <class T>
  void add(const T* source, int64_t count) {
    pieces_[count_++] = piece_of(source, count);
  }
  const BlockCut many_;
  BlockCounts blocks_ = {};
  bool whole_ = false;
  const PageRange* ranges_ = nullptr;
  Piece pieces_[kMost] = {};
  int count_ = 0;
};

}  // namespace kvc::kernels::cuda

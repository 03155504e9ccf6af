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
  // On the device: how much of the plan there is in the step that runs.
  struct Live {
    int64_t few, many;  // blocks
    int64_t tiles;
  };

  // On the device. Blocks of few rows come first. Those of many rows follow, in a step of a graph from most.few on.
  const kvc::kernels::cuda::AttendBlock* blocks;
  kvc::kernels::cuda::BlockCounts count;
  // Of a plan that lies at the same addresses in every step of a graph; else null and 0. A captured call is launched
  // with the most that a step has, and reads on the device what the step has that runs.
  const kvc_backend_plan* live_plan;  // a copy of the plan, whose `arrays` are the device's
  const Live* live;
  kvc::kernels::cuda::BlockCounts most;
  int64_t max_tiles;
};

namespace kvc::kernels::cuda {

// The most blocks that a plan becomes in any step.
BlockCounts most_blocks(const kvc_backend_plan& plan, const BlockCut& many);

// A copy of the plan for the device's kernels.
inline kvc_backend_plan plan_on_device(const kvc_backend_plan& plan) {
  kvc_backend_plan copy = plan;
  copy.arrays = plan.device;
  copy.layer = nullptr;
  copy.staged = nullptr;
  copy.counters = nullptr;
  return copy;
}

// The arrays of a plan and its blocks as pieces of an upload.
class PlanPieces {
 public:
  static constexpr int kMost = 18;

  explicit PlanPieces(const BlockCut& many) : many_(many) {}
  // Everything that the plan has on the host. Page lists become arrays; upload gives the memory to find them. The
  // caller has the upload's lock until write returns.
  kvc_status list_all(kvc_backend_plan* plan, Upload* upload, kvc_error* error);
  // Only what the cutting into items has made, and the blocks.
  void list_work(kvc_backend_plan* plan);
  Piece* pieces() { return pieces_; }
  int count() const { return count_; }

  // After the upload's take: writes what is made here, and fills the plan's addresses on the device, and `staged`.
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

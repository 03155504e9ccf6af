// A plan of attention on the device: its arrays, and the list of thread blocks that compute its items.
//
// A plan is sent once, by one of three functions:
//   - stage sends it with the arrays of its step (step/step.h).
//   - stage_plan sends a plan that was made later in the step. It copies the plan to the plan's area in the memory of
//     the step.
//   - begin_call sends the plan of a stateless call, with all its arrays (step/call_step.h).
// Each function fills plan->device, and makes plan->staged point to a kvc_backend_staged_plan. After that, an attend
// only launches kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/fail.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/step/upload.h"
#include "kvcache_backend.h"

struct kvc_backend_staged_plan {
  // In device memory: the sizes of the plan in the current step.
  struct Live {
    int64_t few, many;  // numbers of thread blocks
    int64_t tiles;
  };

  // In device memory. Blocks of few rows (attend/common/plan.h) come first. Blocks of many rows follow directly, but in
  // a step of a graph they begin at index most.few.
  const kvc::kernels::cuda::AttendBlock* blocks;
  kvc::kernels::cuda::BlockCounts count;
  // The next fields are set only for a plan of a graph, whose arrays have the same addresses in all steps. For other
  // plans the fields are null or 0. A captured call is launched for the capacity, and its kernels read the sizes of the
  // current step.
  const kvc_backend_plan* live_plan;  // in device memory: a copy of the plan, with device addresses of its arrays
  const Live* live;
  kvc::kernels::cuda::BlockCounts most;
  int64_t max_tiles;
  int32_t max_tokens;
};

namespace kvc::kernels::cuda {

// Returns the largest numbers of thread blocks that a plan can have in any step of up to max_tokens tokens.
BlockCounts most_blocks(const kvc_backend_plan& plan, int64_t max_tokens, const BlockCut& many);

// Returns the plan as kernels need it: with the device addresses of its arrays, and without pointers to host memory.
inline kvc_backend_plan plan_on_device(const kvc_backend_plan& plan) {
  kvc_backend_plan copy = plan;
  copy.arrays = plan.device;
  copy.layer = nullptr;
  copy.staged = nullptr;
  copy.counters = nullptr;
  return copy;
}

// The arrays of a plan and its list of thread blocks, as pieces of an upload.
class PlanPieces {
 public:
  static constexpr int kMost = 18;

  explicit PlanPieces(const BlockCut& many) : many_(many) {}
  // Lists all host arrays of the plan as pieces. The page ids of all rows become one array of the upload. The caller
  // holds the upload's lock until write returns.
  kvc_status list_all(kvc_backend_plan* plan, Upload* upload, kvc_error* error);
  // Lists only the arrays of work items and the thread blocks.
  void list_work(kvc_backend_plan* plan);
  Piece* pieces() { return pieces_; }
  int count() const { return count_; }

  // Writes the arrays that this class makes (thread blocks, page ids), and sets the plan's device addresses and
  // `staged`. Call it after the upload's take.
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

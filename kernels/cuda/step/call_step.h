// The step of a call without a cache, which is several calls of the backend. Its index arrays and its plan are one
// copy, and stay in one slot of the upload's ring from begin_call to end_call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

struct CallStep {
  static constexpr int kMostArrays = 3;  // beside the plan's
  kvc_backend_step step;                 // first: a call names it
  kvc_backend_staged_plan staged;
};

}  // namespace kvc::kernels::cuda

// The step of a call without a cache, which makes several calls of the backend. Its index arrays and its plan are sent
// in one copy. They stay in one slot of the upload ring from begin_call to end_call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

struct CallStep {
  static constexpr int kMostArrays = 3;  // besides those of the plan
  kvc_backend_step step;                 // must be the first member: calls give its address
  kvc_backend_staged_plan staged;
};

}  // namespace kvc::kernels::cuda

// The step of a stateless call that calls the backend several times. begin_call sends the index arrays and the plan of
// the call in one copy. The arrays and the plan stay in one slot of the upload ring until end_call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

struct CallStep {
  static constexpr int kMostArrays = 3;  // the largest number of index arrays, not counting those of the plan
  kvc_backend_step step;                 // the first member, because its address identifies the CallStep
  kvc_backend_staged_plan staged;
};

}  // namespace kvc::kernels::cuda

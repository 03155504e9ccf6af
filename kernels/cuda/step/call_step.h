// The step of a stateless call that calls the backend several times. begin_call sends its index arrays and its plan in
// one copy. They stay in one slot of the upload ring until end_call.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

struct CallStep {
  static constexpr int kMostArrays = 3;  // besides the arrays of the plan
  kvc_backend_step step;                 // the first member, because its address identifies the CallStep
  kvc_backend_staged_plan staged;
};

}  // namespace kvc::kernels::cuda

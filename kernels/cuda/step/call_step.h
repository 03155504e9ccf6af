// The step of a call without a cache, which is several calls of the backend: their index arrays in one slot of the
// upload's ring, from begin_call to end_call, so that they are one copy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {

struct CallStep {
  static constexpr int kMostRanges = 24;
  kvc_backend_step step;  // first: a call names it
  kvc_backend_step::Range ranges[kMostRanges];
  kvc_backend_step::Blocks blocks;
};

}  // namespace kvc::kernels::cuda

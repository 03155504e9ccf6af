// Launches attention of few rows.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/decode/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Returns the shape of a block of a call on this device. Its `stages` is 0 if shared memory does not suffice.
DecodeShape shape_of_decode(const Device& device, const AttendCall& call);
// Enqueues `blocks` blocks of few rows. call.blocks points to the first block.
kvc_status launch_decode(const Device& device, const AttendCall& call, const DecodeShape& shape, int64_t blocks,
                         void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

// Launching attention on tensor cores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Gives the bytes of shared memory that a block has besides those that the launch requests. On sm_90 and later the
// image may count the system's 1 KiB among them. The limit of the device applies to the sum.
cudaError_t read_own_shared_bytes(int32_t* bytes);
// The shape of a block of `rows` rows (kFewRows or kManyRows) on this device. It has no stages if shared memory does
// not suffice.
MmaShape mma_shape(const Device& device, const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs);
// Enqueues `blocks` blocks. The first one is *call.blocks.
kvc_status launch_mma(const Device& device, const AttendCall& call, const MmaShape& shape, int64_t blocks, void* stream,
                      kvc_error* error);

}  // namespace kvc::kernels::cuda

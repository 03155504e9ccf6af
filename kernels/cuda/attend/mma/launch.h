// Launching attention on tensor cores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Bytes that a block of the kernels has beside what it is launched with: images of sm_90 and above may count the
// system's kilobyte as theirs, and the device's limit is on both.
cudaError_t read_own_shared_bytes(int32_t* bytes);
// The shape of blocks of so many rows, of kFewRows or kManyRows, on that device; no stages: it has not the memory.
MmaShape mma_shape(const Device& device, const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs);
// Enqueues `blocks` blocks, from call.blocks on.
kvc_status launch_mma(const Device& device, const AttendCall& call, const MmaShape& shape, int64_t blocks, void* stream,
                      kvc_error* error);

}  // namespace kvc::kernels::cuda

// Launches attention on tensor cores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Gives the bytes of static shared memory that the compiled kernel has for a block. The limit of the device applies to
// the sum of these bytes and the requested bytes. On sm_90 and later, the static bytes may include 1 KiB that the
// system reserves.
cudaError_t read_own_shared_bytes(int32_t* bytes);
// Returns the shape of a block of `rows` rows (of kFewRows or kManyRows) on this device. Its `stages` is 0 if shared
// memory does not suffice.
MmaShape mma_shape(const Device& device, const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs);
// Enqueues `blocks` blocks. call.blocks points to the first block. general: the shape of attend_mma_kernel or
// attend_latent_kernel. If attend_many_kernel can compute the blocks, this kernel is launched instead, with a shape of
// its own.
kvc_status launch_mma(const Device& device, const AttendCall& call, const MmaShape& general, int64_t blocks,
                      void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

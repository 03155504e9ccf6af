// Launching attention by warpgroup products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/wgmma/latent_plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Enqueues `blocks` blocks of kWideRows, from call.blocks on. The device uses the kernel, and why_not_wgmma has nothing
// against the call.
kvc_status launch_wgmma(const Device& device, const AttendCall& call, int64_t blocks, void* stream, kvc_error* error);
// The same over latent rows, of blocks of `cut`, that why_not_wgmma_latent has nothing against.
kvc_status launch_wgmma_latent(const Device& device, const AttendCall& call, const BlockCut& cut, int64_t blocks,
                               void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

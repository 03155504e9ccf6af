// Launches attention by warpgroup products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/wgmma/latent_plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Enqueues `blocks` blocks of kWideRows. call.blocks points to the first block. The device must have warpgroup
// products, and why_not_wgmma must be null for the call.
kvc_status launch_wgmma(const Device& device, const AttendCall& call, int64_t blocks, void* stream, kvc_error* error);
// Enqueues blocks over latent rows, cut by `cut`. why_not_wgmma_latent must be null for the call.
kvc_status launch_wgmma_latent(const Device& device, const AttendCall& call, const BlockCut& cut, int64_t blocks,
                               void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

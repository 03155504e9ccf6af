// Launching attention by warpgroup products.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend_wgmma_plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Enqueues `blocks` blocks of kWideRows, from call.blocks on. The device uses the kernel, and why_not_wgmma has nothing
// against the call.
kvc_status launch_wgmma(const Device& device, const AttendCall& call, int64_t blocks, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

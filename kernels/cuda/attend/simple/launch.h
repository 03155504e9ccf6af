// Launches the simple kernel, which can compute every call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Enqueues `blocks` blocks. call.blocks points to the first block.
kvc_status launch_simple(const AttendCall& call, int64_t blocks, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

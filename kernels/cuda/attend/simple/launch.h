// Launching the simple kernel, which computes every call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct AttendCall;

// Enqueues `blocks` blocks, from call.blocks on.
kvc_status launch_simple(const AttendCall& call, int64_t blocks, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

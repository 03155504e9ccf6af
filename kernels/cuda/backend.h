// Gives the table of the CUDA backend, or null if it cannot serve that version.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {
const kvc_backend* backend_of(uint32_t version);
}

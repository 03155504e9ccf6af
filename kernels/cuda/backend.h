// backend_of returns the table of functions of the CUDA backend. It returns null unless `version` is
// KVC_BACKEND_VERSION.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {
const kvc_backend* backend_of(uint32_t version);
}

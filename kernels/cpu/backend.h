// Provides the table of the CPU backend.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

// Returns null unless `version` is KVC_BACKEND_VERSION. Any thread may call it.
extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version);

// The CPU backend's table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

// NULL for another version. Threads: any.
extern "C" const kvc_backend* kvc_cpu_backend_get(uint32_t version);

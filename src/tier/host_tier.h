// The host tier: objects in memory of the process, with a limit in bytes. A submit copies the bytes and completes the
// items, so the tier has no threads. docs/reference/tiers.md lists the guarantees.
//
//   kvc_tier tier;
//   kvc_tier_init(&tier);
//   if (Status status = open_host_tier(int64_t{8} << 30, &tier); !status.ok()) return status;
//   ...
//   tier.close(tier.self);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "kvcache_tier.h"

namespace kvc {

// Errors: INVALID_ARGUMENT (capacity_bytes is not in 4096..2^43 - 4096), OUT_OF_MEMORY.
Status open_host_tier(int64_t capacity_bytes, kvc_tier* tier);

}  // namespace kvc

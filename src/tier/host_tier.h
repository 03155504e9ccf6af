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

// The memory of an object is a whole number of blocks.
constexpr int64_t kHostBlockBytes = 4096;

// Errors: INVALID_ARGUMENT (capacity_bytes is not in 4096..2^43 - 4096), OUT_OF_MEMORY.
Status open_host_tier(int64_t capacity_bytes, kvc_tier* tier);
// self: of a host tier. Returns the bytes of whole blocks that new objects with KVC_TIER_ITEM_KEEP can take, if they
// evict all other objects.
int64_t host_tier_room_to_keep(void* self) noexcept;

}  // namespace kvc

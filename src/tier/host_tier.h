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

#include <memory>

#include "base/status.h"
#include "context/context.h"
#include "kvcache_tier.h"

namespace kvc {

class HostStore;

// pinned_for: nullable; the memory is pinned memory of this context, and all of it is allocated now. Errors:
// INVALID_ARGUMENT (capacity_bytes is not in 4096..2^43 - 4096, or is less than 65536 with pinned_for), UNSUPPORTED
// (the context has no pinned memory), OUT_OF_MEMORY, or an error of the device.
Status open_host_tier(int64_t capacity_bytes, kvc_tier* tier, std::shared_ptr<Context> pinned_for = nullptr);
// self: of a host tier. Gives the store, for callers that read and write objects in place. It is that of the process
// that opened the tier, and a child of fork() must not use it.
HostStore* host_tier_store(void* self) noexcept;

}  // namespace kvc

// check_tier_items makes the checks that every tier needs before it accepts a job.
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_tier.h"

namespace kvc {

enum class TierWork : uint8_t { kStore, kLoad, kRemove };

struct TierLimits {
  int64_t max_job_items = 0;
  int64_t max_object_bytes = 0;
  uint32_t item_flags = 0;  // item flags that the tier supports
};

// Errors: INVALID_ARGUMENT, NULL_ARGUMENT, BATCH_TOO_LARGE and UNSUPPORTED. If an item is wrong, the error has its
// index.
Status check_tier_items(TierWork work, int64_t n, const kvc_tier_item* items, const TierLimits& limits);

}  // namespace kvc

// The config of a plan: its defaults and its limits. Pure functions; any thread.
#pragma once

#include "base/status.h"
#include "kvcache.h"

namespace kvc {

constexpr int64_t kMaxPlanRows = 1 << 20;
constexpr int64_t kMaxPlanSlots = int64_t{1} << 31;  // slots are int32 in tables of page size 1

// Checks a caller's config, and fills in the defaults where it has zeros.
Status complete_config(const kvc_plan_config& config, kvc_plan_config* out);

}  // namespace kvc

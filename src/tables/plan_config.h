// Checks the config of a plan, and fills in defaults. complete_config is a pure function, and any thread may call it.
#pragma once

#include "base/status.h"
#include "kvcache.h"

namespace kvc {

constexpr int64_t kMaxPlanRows = 1 << 20;            // limit of the rows of a step, and of max_tokens
constexpr int64_t kMaxPlanSlots = int64_t{1} << 31;  // slots of a server's pool; tables have slots as int32

// Checks a caller's config, and writes it to *out with defaults in place of zeros.
Status complete_config(const kvc_plan_config& config, kvc_plan_config* out);

}  // namespace kvc

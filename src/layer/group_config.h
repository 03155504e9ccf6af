// What a kvc_group_config means: what the group stores for a token (its row), and which keys its queries see (its
// visibility). The two are independent. Every combination of them, and of a layer with them, that makes no sense is
// refused here. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache.h"
#include "sequence/group_rules.h"

namespace kvc {

constexpr int64_t kMaxLength = int64_t{1} << 30;  // tokens of a sequence: positions and tiles fit in 32 bits
constexpr int64_t kMaxPages = INT32_MAX;

// Checks a group's number. On failure error->index and error->group are the group's.
Status check_group_field(int64_t index, const char* name, int64_t value, int64_t low, int64_t high);

// Reads row and visibility. The rest of the rules is the cache's.
Status read_group(const kvc_group_config& config, int64_t index, GroupRules* out);

// Whether a layer that has keys can be in a group with these rules.
Status check_layer_of_group(const kvc_layer_config& config, int64_t index, const GroupRules& rules);

}  // namespace kvc

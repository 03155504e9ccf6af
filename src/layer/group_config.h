// What a kvc_group_config means: what the group stores for a token (its row), and which keys its queries see (its
// visibility). The two are independent. Every combination of them, and of a layer with them, that makes no sense is
// refused here. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kvcache.h"
#include "sequence/group_rules.h"
#include "sequence/sequence_store_config.h"

namespace kvc {

constexpr int64_t kMaxLength = int64_t{1} << 30;  // tokens of a sequence: positions and tiles fit in 32 bits
constexpr int64_t kMaxPages = INT32_MAX;

// Checks a group's number. On failure error->index and error->group are the group's.
Status check_group_field(int64_t index, const char* name, int64_t value, int64_t low, int64_t high);

// Reads row, visibility and tokens_per_row. The rest of the rules is the cache's. page_size: the cache's.
Status read_group(const kvc_group_config& config, int64_t index, int64_t page_size, GroupRules* out);

// Refuses a cache that cannot have groups with several tokens a row.
Status check_compressed_groups(const std::vector<SequenceStoreConfig::Group>& groups, bool streaming, bool tables_only);

// Whether a layer that has keys can be in a group with these rules.
Status check_layer_of_group(const kvc_layer_config& config, int64_t index, const GroupRules& rules);

}  // namespace kvc

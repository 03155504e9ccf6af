// Reads a kvc_group_config: what the group stores for a token (its row), and which keys its queries see (its
// visibility). Row and visibility are independent. Combinations that have no meaning are refused here. Layers that do
// not fit their group are refused here, too. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "kvcache.h"
#include "sequence/group_rules.h"
#include "sequence/sequence_store_config.h"

namespace kvc {

constexpr int64_t kMaxPages = INT32_MAX;

// Checks a number of a group's config. On failure, error->index and error->group are the index of the group.
Status check_group_field(int64_t index, const char* name, int64_t value, int64_t low, int64_t high);

// Reads row, visibility and tokens_per_row. The caller sets the other rules. page_size: tokens of a page of the
// cache.
Status read_group(const kvc_group_config& config, int64_t index, int64_t page_size, GroupRules* out);

// Refuses groups of compressed rows in a cache that cannot have them.
Status check_compressed_groups(const std::vector<SequenceStoreConfig::Group>& groups, bool streaming, bool tables_only);

// Checks that a layer with keys can be in a group with these rules.
Status check_layer_of_group(const kvc_layer_config& config, int64_t index, const GroupRules& rules);

}  // namespace kvc

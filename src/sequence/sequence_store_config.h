// The sizes and groups of a SequenceStore.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sequence/group_rules.h"

namespace kvc {

struct SequenceStoreConfig {
  struct Group {
    GroupRules rules;
    int64_t num_pages = 0;
  };
  std::vector<Group> groups;
  int64_t max_sequences = 0;
  int64_t max_snapshots = 0;
  uint32_t cache_tag = 0;
  int64_t max_length = 0;             // largest number of tokens of a sequence
  int64_t max_tree_nodes = 0;         // largest number of uncommitted nodes of a sequence, at most kMaxTreeNodes
  int64_t max_checkpoints = 0;        // largest number of checkpoints of a sequence, if there are state groups
  int64_t max_draft_states = 0;       // number of first uncommitted nodes whose states a sequence keeps; at most 63
  bool streaming = false;             // sequences may have streaming windows
  bool indexed = false;               // the cache has a prefix index, so set_evictor, attach and publish are called
  bool cleared = false;               // a page is cleared when it is taken, except where a copy fills it
  std::vector<int32_t> layer_groups;  // [layers]: the group in which a layer stores its tokens or states; -1 = none

  int32_t num_state_groups() const noexcept {
    int32_t count = 0;
    for (const Group& group : groups) count += group.rules.holds_state();
    return count;
  }
  int32_t num_encoder_groups() const noexcept {
    int32_t count = 0;
    for (const Group& group : groups) count += group.rules.holds_encoder();
    return count;
  }
};

}  // namespace kvc

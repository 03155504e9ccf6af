#include "plan/batch_plan.h"

#include <algorithm>

namespace kvc {

BatchPlan::BatchPlan(const BatchLimits& limits, int32_t num_groups)
    : token_begin_(limits.rows + 1),
      kv_lengths_(limits.rows),
      last_rows_(limits.rows),
      positions_(limits.tokens),
      tree_begin_(limits.rows),
      tree_offset_(limits.rows),
      tree_nodes_(most_nodes(limits)),
      groups_(static_cast<size_t>(num_groups)) {
  for (Group& group : groups_) {
    group.roots = LazyArray<int32_t>(limits.rows);
    group.levels = LazyArray<int32_t>(limits.rows);
    group.slot_mapping = LazyArray<int64_t>(limits.tokens);
    group.tables.roots = group.roots.data();
    group.tables.levels = group.levels.data();
  }
}

void BatchPlan::build(const SequenceStore& store, std::span<const int32_t> slots,
                      std::span<const int32_t> lengths) noexcept {
  int32_t tokens = 0;
  const auto num_rows = static_cast<int32_t>(slots.size());
  for (int32_t row = 0; row < num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    const int32_t length = lengths[static_cast<size_t>(row)];
    const auto first = static_cast<int32_t>(slot < 0 ? 0 : store.stored(slot));
    token_begin_[row] = tokens;
    kv_lengths_[row] = slot < 0 ? 0 : first + length;
    for (int32_t i = 0; i < length; ++i) positions_[tokens + i] = slot < 0 ? 0 : first + i;
    tokens += length;
    last_rows_[row] = length > 0 ? tokens - 1 : -1;
  }
  token_begin_[num_rows] = tokens;
  rows_ = {};
  rows_.num_rows = num_rows;
  rows_.num_tokens = tokens;
  rows_.token_begin = token_begin_.data();
  rows_.kv_lengths = kv_lengths_.data();
  rows_.positions = positions_.data();

  for (int32_t g = 0; g < static_cast<int32_t>(groups_.size()); ++g) {
    Group& group = groups_[static_cast<size_t>(g)];
    const int64_t page_size = store.rules(g).page_size;
    group.tables.nodes = store.table(g).node_data();
    for (int32_t row = 0; row < num_rows; ++row) {
      const int32_t slot = slots[static_cast<size_t>(row)];
      const int32_t length = lengths[static_cast<size_t>(row)];
      int64_t* mapping = group.slot_mapping.data() + token_begin_[row];
      if (slot < 0) {
        group.roots[row] = -1;
        group.levels[row] = 0;
        std::fill_n(mapping, length, int64_t{-1});
        continue;
      }
      const PageList& list = store.list(slot, g);
      group.roots[row] = list.root;
      group.levels[row] = list.levels;
      const int64_t begin = store.stored(slot);
      const int64_t end = begin + length;
      if (length == 1) {  // decode: the new token is in the last page
        mapping[0] = list.tail_page * page_size + (begin - (list.size - 1) * page_size);
        continue;
      }
      store.table(g).for_each(list, begin / page_size, list.size, [&](int64_t index, int32_t page) {
        const int64_t stop = std::min(end, (index + 1) * page_size);
        for (int64_t p = std::max(begin, index * page_size); p < stop; ++p) {
          mapping[p - begin] = page * page_size + (p - index * page_size);
        }
      });
    }
  }
}

void BatchPlan::add_trees(const SequenceStore& store, std::span<const int32_t> slots,
                          std::span<const int32_t> lengths) noexcept {
  int32_t offset = 0;
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    tree_begin_[row] = kv_lengths_[row];
    tree_offset_[row] = offset;
    if (slot < 0 || !store.grows_tree(slot)) continue;
    const int32_t fresh = lengths[static_cast<size_t>(row)];
    const std::span<const int16_t> parents = store.tree(slot, fresh);
    kvc_backend_tree_node* nodes = tree_nodes_.data() + offset;
    tree_begin_[row] = static_cast<int32_t>(store.length(slot));
    number_tree(parents, tree_begin_[row], nodes);
    const auto count = static_cast<int32_t>(parents.size());
    for (int32_t i = 0; i < fresh; ++i) positions_[token_begin_[row] + i] = nodes[count - fresh + i].position;
    offset += count;
  }
  rows_.tree_begin = tree_begin_.data();
  rows_.tree_offset = tree_offset_.data();
  rows_.tree_nodes = tree_nodes_.data();
}

}  // namespace kvc

#include "plan/batch_plan.h"

#include <algorithm>

namespace kvc {

BatchPlan::BatchPlan(const BatchLimits& limits, int32_t num_groups)
    : token_begin_(static_cast<size_t>(limits.rows) + 1),
      kv_lengths_(static_cast<size_t>(limits.rows)),
      last_rows_(static_cast<size_t>(limits.rows)),
      positions_(static_cast<size_t>(limits.tokens)),
      groups_(static_cast<size_t>(num_groups)) {
  for (Group& group : groups_) {
    group.roots.resize(static_cast<size_t>(limits.rows));
    group.levels.resize(static_cast<size_t>(limits.rows));
    group.slot_mapping.resize(static_cast<size_t>(limits.tokens));
    group.tables.roots = group.roots.data();
    group.tables.levels = group.levels.data();
  }
}

void BatchPlan::build(const SequenceStore& store, std::span<const int32_t> slots,
                      std::span<const int32_t> lengths) noexcept {
  int32_t tokens = 0;
  for (size_t row = 0; row < slots.size(); ++row) {
    const int32_t slot = slots[row];
    const auto first = static_cast<int32_t>(slot < 0 ? 0 : store.length(slot));
    token_begin_[row] = tokens;
    kv_lengths_[row] = slot < 0 ? 0 : first + lengths[row];
    for (int32_t i = 0; i < lengths[row]; ++i) positions_[static_cast<size_t>(tokens + i)] = slot < 0 ? 0 : first + i;
    tokens += lengths[row];
    last_rows_[row] = lengths[row] > 0 ? tokens - 1 : -1;
  }
  token_begin_[slots.size()] = tokens;
  rows_ = {static_cast<int32_t>(slots.size()), tokens, token_begin_.data(), kv_lengths_.data(), positions_.data()};

  for (int32_t g = 0; g < static_cast<int32_t>(groups_.size()); ++g) {
    Group& group = groups_[static_cast<size_t>(g)];
    const int64_t page_size = store.rules(g).page_size;
    group.tables.nodes = store.table(g).node_data();
    for (size_t row = 0; row < slots.size(); ++row) {
      int64_t* mapping = group.slot_mapping.data() + token_begin_[row];
      if (slots[row] < 0) {
        group.roots[row] = -1;
        group.levels[row] = 0;
        std::fill_n(mapping, lengths[row], int64_t{-1});
        continue;
      }
      const PageList& list = store.list(slots[row], g);
      group.roots[row] = list.root;
      group.levels[row] = list.levels;
      const int64_t begin = store.length(slots[row]);
      const int64_t end = begin + lengths[row];
      if (lengths[row] == 1) {  // decode: the new token is in the last page
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

}  // namespace kvc

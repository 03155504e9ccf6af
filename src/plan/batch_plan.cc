#include "plan/batch_plan.h"

#include <algorithm>

#include "base/assert.h"
#include "base/checked.h"

namespace kvc {

BatchPlan::BatchPlan(const BatchLimits& limits, int32_t num_groups)
    : token_begin_(limits.rows + 1),
      kv_lengths_(limits.rows),
      last_rows_(limits.rows),
      positions_(limits.tokens),
      key_ends_(limits.tokens),
      tree_begin_(limits.rows),
      tree_offset_(limits.rows),
      tree_nodes_(most_nodes(limits)),
      stream_sinks_(limits.streaming ? limits.rows : 0),
      stream_windows_(limits.streaming ? limits.rows : 0),
      sink_positions_(limits.streaming ? limits.tokens : 0),
      groups_(static_cast<size_t>(num_groups)),
      sinks_apart_(limits.sinks_apart),
      used_rows_(limits.rows),
      used_tokens_(limits.tokens) {
  for (Group& group : groups_) {
    group.roots = StepArray<int32_t>(limits.rows);
    group.levels = StepArray<int32_t>(limits.rows);
    group.slot_mapping = StepArray<int64_t>(limits.tokens);
    group.own_lengths = StepArray<int32_t>(limits.rows);
    group.own_positions = StepArray<int32_t>(limits.tokens);
    group.tables.roots = group.roots.data();
    group.tables.levels = group.levels.data();
  }
}

// Writes the slots of a row's new tokens to `mapping`, which has an entry for each token of the batch. tokens: the
// row's entries of token_begin. end: the row's length. The list must already have pages for the new tokens.
inline void BatchPlan::map_slots(const PageTable& table, const PageList& list, int64_t page_size, const int32_t* tokens,
                                 int64_t end, int64_t* mapping) noexcept {
  const int64_t begin = end - (tokens[1] - tokens[0]);
  mapping += tokens[0];
  KVC_ASSERT(begin >= 0 && end <= list.size * page_size, end, list.size);
  if (end - begin == 1) {  // decode: the new token is in the last page
    KVC_ASSERT(list.tail_page >= 0, list.tail_page, list.size);
    mapping[0] = (int64_t{list.tail_page} - list.size + 1) * page_size + begin;
    return;
  }
  table.for_each(list, begin / page_size, list.size, [&](int64_t index, int32_t page) {
    const int64_t stop = std::min(end, (index + 1) * page_size);
    for (int64_t p = std::max(begin, index * page_size); p < stop; ++p) {
      mapping[p - begin] = page * page_size + (p - index * page_size);
    }
  });
}

// Writes the slots of the compressed rows that a row of the batch closes in a group. Returns the number of these rows.
int32_t BatchPlan::map_closed_rows(const PageTable& table, const PageList& list, const GroupRules& rules, int32_t row,
                                   int64_t* mapping) const noexcept {
  const int64_t tokens = kv_lengths_[row], fresh = token_begin_[row + 1] - token_begin_[row];
  const int64_t begin = rules.rows_of(tokens - fresh), end = rules.rows_of(tokens);
  const int64_t page_rows = rules.rows_of(rules.page_size);
  if (begin == end) return 0;
  table.for_each(list, begin / page_rows, ceil_div(end, page_rows), [&](int64_t index, int32_t page) {
    const int64_t stop = std::min(end, (index + 1) * page_rows);
    for (int64_t w = std::max(begin, index * page_rows); w < stop; ++w) {
      mapping[w - begin] = page * page_rows + w % page_rows;
    }
  });
  return static_cast<int32_t>(end - begin);
}

// Completes a group with compressed rows of r tokens. A query at position p sees the rows below index (p + 1) / r. If
// positions are counted in compressed rows, this is a causal query at position (p + 1) / r - 1. So the kernels need no
// other rule.
void BatchPlan::build_compressed(const SequenceStore& store, std::span<const int32_t> slots, int32_t g) noexcept {
  Group& group = groups_[static_cast<size_t>(g)];
  const GroupRules& rules = store.rules(g);
  group.num_appended = 0;
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    group.own_lengths[row] = slot < 0 ? -1 : static_cast<int32_t>(rules.rows_of(kv_lengths_[row]));
    for (int32_t t = token_begin_[row]; t < token_begin_[row + 1]; ++t) {
      group.own_positions[t] = static_cast<int32_t>(rules.rows_of(positions_[t] + 1)) - 1;
    }
    if (slot < 0) continue;
    group.num_appended += map_closed_rows(store.table(g), store.list(slot, g), rules, row,
                                          group.slot_mapping.data() + group.num_appended);
  }
  group.own_rows = rows_;
  group.own_rows.kv_lengths = group.own_lengths.data();
  group.own_rows.positions = group.own_positions.data();
}

void BatchPlan::build(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths,
                      int32_t encoder_group) noexcept {
  int32_t tokens = 0;
  const auto num_rows = static_cast<int32_t>(slots.size());
  int32_t* const token_begin = token_begin_.data();
  int32_t* const kv_lengths = kv_lengths_.data();
  int32_t* const last_rows = last_rows_.data();
  int32_t* const positions = positions_.data();
  for (int32_t row = 0; row < num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    const int32_t length = lengths[static_cast<size_t>(row)];
    const int64_t stored = slot < 0             ? 0
                           : encoder_group >= 0 ? store.stored_in(slot, encoder_group)
                                                : store.stored(slot);
    KVC_ASSERT(length >= 0 && tokens + length <= positions_.size(), tokens + length, positions_.size());
    const auto first = static_cast<int32_t>(stored);
    token_begin[row] = tokens;
    kv_lengths[row] = slot < 0 ? -1 : first + length;
    last_rows[row] = length > 0 ? tokens + length - 1 : -1;
    for (int32_t i = 0; i < length; ++i) positions[tokens++] = slot < 0 ? 0 : first + i;
  }
  token_begin[num_rows] = tokens;
  rows_ = {};
  stream_rows_ = {};
  appends_encoder_tokens_ = encoder_group >= 0;
  rows_.num_rows = num_rows;
  rows_.num_tokens = tokens;
  rows_.token_begin = token_begin_.data();
  rows_.kv_lengths = kv_lengths_.data();
  rows_.positions = positions_.data();

  for (int32_t g = 0; g < static_cast<int32_t>(groups_.size()); ++g) {
    Group& group = groups_[static_cast<size_t>(g)];
    const GroupRules& rules = store.rules(g);
    group.own_rows = {};
    group.streams = false;
    group.num_appended = 0;
    if (rules.holds_state()) continue;
    const PageTable& table = store.table(g);
    group.tables.nodes = table.node_data();
    const bool appended = rules.grows(g, encoder_group), maps = appended && !rules.compresses();
    if (appended) group.num_appended = tokens;
    int32_t* const roots = group.roots.data();
    int32_t* const levels = group.levels.data();
    int64_t* const mapping = group.slot_mapping.data();
    for (int32_t row = 0; row < num_rows; ++row) {
      const int32_t slot = slots[static_cast<size_t>(row)];
      if (slot < 0) {
        roots[row] = -1;
        levels[row] = 0;
        std::fill(mapping + token_begin[row], mapping + token_begin[row + 1], int64_t{-1});
        continue;
      }
      const PageList& list = store.list(slot, g);
      roots[row] = list.root;
      levels[row] = list.levels;
      if (maps) map_slots(table, list, rules.page_size, token_begin + row, kv_lengths[row], mapping);
    }
    if (appended && rules.compresses()) build_compressed(store, slots, g);
    if (!appended && encoder_group < 0) {
      for (int32_t row = 0; row < num_rows; ++row) {
        const int32_t slot = slots[static_cast<size_t>(row)];
        group.own_lengths[row] = slot < 0 ? -1 : static_cast<int32_t>(store.stored_in(slot, g));
      }
      group.own_rows = rows_;
      group.own_rows.kv_lengths = group.own_lengths.data();
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
    KVC_ASSERT(count >= fresh && offset + count <= tree_nodes_.size(), offset + count, tree_nodes_.size());
    for (int32_t i = 0; i < fresh; ++i) positions_[token_begin_[row] + i] = nodes[count - fresh + i].position;
    offset += count;
  }
  num_tree_nodes_ = offset;
  rows_.tree_begin = tree_begin_.data();
  rows_.tree_offset = tree_offset_.data();
  rows_.tree_nodes = tree_nodes_.data();
}

void BatchPlan::add_spans(const int32_t* span_ids) noexcept {
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const int32_t begin = token_begin_[row], end = token_begin_[row + 1];
    const int32_t past = kv_lengths_[row] - (end - begin);
    for (int32_t token = end; token-- > begin;) {
      const bool joined = token + 1 < end && span_ids[token] > 0 && span_ids[token] == span_ids[token + 1];
      key_ends_[token] = joined ? key_ends_[token + 1] : past + (token - begin) + 1;
    }
  }
  rows_.key_ends = key_ends_.data();
}

void BatchPlan::add_streams(const SequenceStore& store, std::span<const int32_t> slots) noexcept {
  bool any = false;
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    const StreamWindow stream = slot < 0 ? StreamWindow{} : store.stream(slot);
    const bool apart = sinks_apart_ && stream.sinks > 0;
    const kernels::VisibleRule rule = kernels::see_stream(stream.sinks, stream.window);
    const bool hides = kernels::visible_begin(rule, kv_lengths_[row] - 1) > stream.sinks;
    const bool streams = stream.on() && (apart || hides);
    stream_sinks_[row] = streams ? stream.sinks : 0;
    stream_windows_[row] = streams ? stream.window : 0;
    any = any || streams;
  }
  if (!any) return;
  for (int32_t row = 0; row < rows_.num_rows; ++row) {
    const int32_t window = stream_windows_[row];
    for (int32_t t = token_begin_[row]; t < token_begin_[row + 1]; ++t) {
      sink_positions_[t] = window > 0 ? kernels::position_for_sinks(window, positions_[t]) : positions_[t];
    }
  }
  stream_rows_ = rows_;
  stream_rows_.stream_sinks = stream_sinks_.data();
  stream_rows_.stream_windows = stream_windows_.data();
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].streams = store.rules(static_cast<int32_t>(g)).streams();
  }
}

kvc_backend_rows BatchPlan::device_rows(int32_t group) const noexcept {
  const Group& g = groups_[static_cast<size_t>(group)];
  kvc_backend_rows rows = this->rows(group);
  const auto point = [](auto* pointer, const auto& array) {
    if (*pointer != nullptr) *pointer = array.device;
  };
  point(&rows.token_begin, token_begin_);
  point(&rows.kv_lengths, g.own_rows.num_rows > 0 ? g.own_lengths : kv_lengths_);
  point(&rows.positions, g.has_positions() ? g.own_positions : positions_);
  point(&rows.key_ends, key_ends_);
  point(&rows.stream_sinks, stream_sinks_);
  point(&rows.stream_windows, stream_windows_);
  point(&rows.tree_begin, tree_begin_);
  point(&rows.tree_offset, tree_offset_);
  point(&rows.tree_nodes, tree_nodes_);
  return rows;
}

kvc_backend_tables BatchPlan::device_tables(int32_t group) const noexcept {
  const Group& g = groups_[static_cast<size_t>(group)];
  return {g.device_nodes, g.roots.device, g.levels.device, nullptr, nullptr};
}

void BatchPlan::clear_rest() noexcept {
  const int64_t rows = rows_.num_rows, tokens = rows_.num_tokens;
  for (int64_t i = rows; i < used_rows_; ++i) last_rows_[i] = -1;
  for (int64_t i = tokens; i < used_tokens_; ++i) positions_[i] = 0;
  for (Group& group : groups_) {
    for (int64_t i = tokens; i < used_tokens_; ++i) group.slot_mapping[i] = -1;
  }
  used_rows_ = rows;
  used_tokens_ = tokens;
}

}  // namespace kvc

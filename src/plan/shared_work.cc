// The part of WorkPlan for prefixes that several rows share.
#include <algorithm>

#include "base/assert.h"
#include "base/checked.h"
#include "plan/prefix_cost.h"
#include "plan/work_plan.h"

namespace kvc {
namespace {

int32_t queries_of(const kvc_backend_rows& rows, int32_t row) noexcept {
  return rows.token_begin[row + 1] - rows.token_begin[row];
}

// Returns the number of leading tokens of a row from before this step that all queries of the row see. The row may
// share the pages that are full of these tokens.
int32_t shareable_tokens(const kvc_backend_rows& rows, int32_t row, const WorkShape& shape) noexcept {
  const int32_t queries = queries_of(rows, row), length = rows.kv_lengths[row];
  if (queries == 0 || length <= 0 || queries > shape.tiling.decode_max_queries) return 0;
  if (rows.stream_windows != nullptr && rows.stream_windows[row] > 0) return 0;
  int32_t past = length - queries;
  if (rows.tree_begin != nullptr) past = std::min(past, rows.tree_begin[row]);
  return std::max(past, 0);  // in an encoder group, the length may be less than the number of queries
}

// Rows of different kinds share no pages: their keys are rotated by different factor sets.
int32_t kind_of_row(const kvc_backend_rows& rows, int32_t row, const int32_t* key_sets) noexcept {
  return key_sets == nullptr ? 0 : key_sets[rows.token_begin[row]];
}

}  // namespace

bool WorkPlan::pays(const Prefix& prefix) const noexcept {
  if (shape_.sharing == PrefixSharing::kAlways) return true;
  PrefixCase of;
  of.rows = prefix.end - prefix.begin;
  of.queries = prefix.queries;
  of.keys = prefix.key_end - prefix.key_begin;
  of.nested = prefix.key_begin > 0;
  of.group_size = shape_.num_q_heads / shape_.num_kv_heads;
  of.head_dim = shape_.head_dim;
  of.v_head_dim = shape_.v_head_dim;
  of.key_bytes = shape_.key_bytes;
  return sharing_pays(of);
}

// Whether two rows may share their first page. In most batches no two rows do, so this check comes before the search.
bool WorkPlan::any_share_a_page(const kvc_backend_rows& rows, const kvc_backend_tables& tables,
                                const int32_t* key_sets) noexcept {
  first_pages_.clear(rows.num_rows);
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    if (shareable_tokens(rows, row, shape_) < shape_.page_size) continue;
    const int64_t kind = kind_of_row(rows, row, key_sets);
    if (!first_pages_.add(kind << 32 | PrefixTrie::page_of(tables, row, 0))) return true;
  }
  return false;
}

// Finds the prefixes to which rows attend together. Visits a shorter prefix before the longer prefixes within it. A
// longer prefix covers only the keys after the shorter prefix, and the items of each row cover the keys after its last
// prefix.
void WorkPlan::find_prefixes(const kvc_backend_rows& rows, const kvc_backend_tables& tables,
                             const int32_t* key_sets) noexcept {
  trie_.clear();
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    shares_[row] = {0, 0, 0, -1};
    trie_.add(row, shareable_tokens(rows, row, shape_) / shape_.page_size, kind_of_row(rows, row, key_sets));
  }
  trie_.find(tables);
  for (const PrefixGroup& group : trie_.groups()) {
    Prefix prefix = {group.begin, group.end, shares_[trie_.row(group.begin)].keys, group.pages * shape_.page_size, 0,
                     0,           0};
    for (int32_t i = group.begin; i < group.end; ++i) prefix.queries += queries_of(rows, trie_.row(i));
    const int64_t states = int64_t{prefix.queries} * (prefix.key_begin == 0 ? 2 : 1);
    if (!pays(prefix) || shared_queries_ + states > max_shared_queries_) continue;
    shared_queries_ += states;
    for (int32_t i = group.begin; i < group.end; ++i) shares_[trie_.row(i)].keys = prefix.key_end;
    prefixes_.push_back(prefix);
  }
}

// Returns an item over the whole prefix.
kvc_backend_item WorkPlan::item_of(const Prefix& prefix) const noexcept {
  kvc_backend_item item = {};
  item.row = trie_.row(prefix.begin);
  item.q_end = prefix.queries;
  item.head_end = shape_.num_kv_heads;
  item.key_begin = prefix.key_begin;
  item.key_end = prefix.key_end;
  item.tile = -1;
  item.partial_offset = -1;
  return item;
}

// Decides into how many items a prefix is cut, so that each item costs about target_cost. It cuts by heads first,
// because cutting the keys adds a partial state for each range.
void WorkPlan::cut_prefix(Prefix* prefix, int64_t target_cost) noexcept {
  KVC_ASSERT(prefix->queries > 0 && prefix->key_begin < prefix->key_end, prefix->queries, prefix->key_end);
  const kvc_backend_tiling& tiling = shape_.tiling;
  const int64_t heads = shape_.num_kv_heads, keys = prefix->key_end - prefix->key_begin;
  const int64_t wanted = ceil_div(cost(item_of(*prefix)), target_cost);
  // If items of a backend have all heads, the backend computes the heads of an item in parallel. It also computes each
  // tile of query_tile queries in parallel.
  const bool all_heads = heads > 1 && tiling.heads_per_item >= heads;
  prefix->heads_each = static_cast<int32_t>(all_heads ? heads : ceil_div(heads, std::min(wanted, heads)));
  const int64_t at_once = all_heads ? ceil_div(prefix->queries, tiling.query_tile) : heads;
  const int64_t room = 1 + (max_shared_queries_ - shared_queries_) / prefix->queries;
  const int64_t key_parts = std::min({ceil_div(wanted, at_once), keys / tiling.min_split_keys, room});
  const int64_t first_block = prefix->key_begin / tiling.split_align;
  const int64_t blocks = ceil_div(prefix->key_end, tiling.split_align) - first_block;
  const int64_t blocks_each = ceil_div(blocks, std::max<int64_t>(1, key_parts));
  prefix->keys_each = static_cast<int32_t>(blocks_each * tiling.split_align);
  const auto parts = static_cast<int32_t>(ceil_div(blocks, blocks_each));
  shared_queries_ += int64_t{prefix->queries} * (parts - 1);
  for (int32_t i = prefix->begin; i < prefix->end; ++i) {
    RowShare& share = shares_[trie_.row(i)];
    share.parts += parts;
    share.items += parts * static_cast<int32_t>(ceil_div(heads, prefix->heads_each));
  }
}

void WorkPlan::emit_prefix(const kvc_backend_rows& rows, const Prefix& prefix) noexcept {
  kvc_backend_item item = item_of(prefix);
  const int64_t align = shape_.tiling.split_align, first = prefix.key_begin / align * align;
  for (int64_t begin = first; begin < prefix.key_end; begin += prefix.keys_each) {
    item.key_begin = static_cast<int32_t>(std::max<int64_t>(begin, prefix.key_begin));
    item.key_end = static_cast<int32_t>(std::min<int64_t>(begin + prefix.keys_each, prefix.key_end));
    item.span_begin = static_cast<int32_t>(spans_.size());
    for (int32_t i = prefix.begin; i < prefix.end; ++i) {
      const int32_t row = trie_.row(i), queries = queries_of(rows, row);
      kvc_backend_tile& tile = tiles_[static_cast<size_t>(shares_[row].tile)];
      parts_[static_cast<size_t>(tile.part_end++)] = partial_floats_;
      KVC_ASSERT(spans_.size() < spans_.capacity(), spans_.size(), spans_.capacity());
      spans_.push_back({row, 0, queries, shares_[row].tile, partial_floats_});
      partial_floats_ += queries * state_floats();
    }
    item.span_end = static_cast<int32_t>(spans_.size());
    for (int32_t head = 0; head < shape_.num_kv_heads; head += prefix.heads_each) {
      item.head_begin = head;
      item.head_end = std::min(shape_.num_kv_heads, head + prefix.heads_each);
      items_.push_back(item);
    }
  }
}

void WorkPlan::emit_prefixes(const kvc_backend_rows& rows, int64_t target_cost) noexcept {
  for (Prefix& prefix : prefixes_) cut_prefix(&prefix, target_cost);
  for (const Prefix& prefix : prefixes_) {
    for (int32_t i = prefix.begin; i < prefix.end; ++i) {
      RowShare& share = shares_[trie_.row(i)];
      if (share.tile >= 0) continue;
      share.tile = static_cast<int32_t>(tiles_.size());
      const auto part_begin = static_cast<int32_t>(parts_.size());
      parts_.resize(parts_.size() + static_cast<size_t>(share.parts));
      tiles_.push_back({0, 0, part_begin, part_begin, share.items, 0});
    }
    emit_prefix(rows, prefix);
  }
}

}  // namespace kvc

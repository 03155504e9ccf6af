#include "plan/work_plan.h"

#include <algorithm>
#include <tuple>

#include "base/assert.h"
#include "base/checked.h"
#include "kernels/common/key_split.h"

namespace kvc {
namespace {

// The number of items for each thread. Several items balance the load if items have different sizes or threads start at
// different times.
constexpr int64_t kItemsPerThread = 4;
// The largest number of states that tiles with shared prefixes merge for a query, as an average over the queries of the
// batch. A query has a state for each of its shared prefixes, and one for the rest of its keys. If a prefix would
// exceed this average, it is not shared.
constexpr int64_t kSharedParts = 4;
constexpr int64_t kMaxSharedFloats = 8 << 20;
// With fixed splits, the largest number of items of split rows, and of floats of their states. A row that would exceed
// one of these limits is not split.
constexpr int64_t kMaxFixedItems = 4096;
constexpr int64_t kMaxFixedFloats = 8 << 20;
// The largest and the smallest number of bytes of K and V in an item that has only some heads of its row. Larger items
// are split along the keys instead: their states must be merged, but whole pages are read faster from memory. Smaller
// items cost more time than they save.
constexpr int64_t kMaxHeadItemBytes = 2 << 20;
constexpr int64_t kMinHeadItemBytes = 64 << 10;
// If an item has fewer rows than this (queries x q heads of a kv head), reading K and V takes longer than computing
// with them.
constexpr int64_t kMemoryBoundQueries = 8;

// In target_of_waves: the largest number of parts of a row. A merge of more parts would take longer.
constexpr int64_t kMostParts = 32;

int64_t splits(const WorkShape& shape) noexcept {
  return shape.num_threads > 1 ? kItemsPerThread * shape.num_threads : 0;
}

int64_t group_size(const WorkShape& shape) noexcept { return shape.num_q_heads / shape.num_kv_heads; }

int64_t head_parts(const WorkShape& shape) noexcept {
  return ceil_div(shape.num_kv_heads, shape.tiling.heads_per_item);
}

// Returns an upper bound of the number of bases (Base in work_plan.h).
int64_t max_bases(const WorkShape& shape, const BatchLimits& limits) noexcept {
  const int64_t prefill_rows = limits.tokens / (shape.tiling.decode_max_queries + 1);
  const int64_t tiles = limits.tokens / shape.tiling.query_tile + prefill_rows;
  return limits.rows + tiles * head_parts(shape);
}

}  // namespace

bool operator==(const WorkShape& a, const WorkShape& b) noexcept {
  const auto key = [](const WorkShape& s) {
    return std::tie(s.num_q_heads, s.num_kv_heads, s.head_dim, s.v_head_dim, s.key_bytes, s.page_size, s.visible,
                    s.streaming, s.by_position, s.tiling.decode_max_queries, s.tiling.query_tile,
                    s.tiling.heads_per_item, s.tiling.split_align, s.tiling.min_split_keys, s.tiling.resident_items,
                    s.num_threads, s.fixed_splits, s.key_splits, s.sharing, s.key_sets_class);
  };
  return key(a) == key(b);
}

int64_t WorkPlan::max_items(const WorkShape& shape, const BatchLimits& limits) noexcept {
  if (shape.key_splits > 0) return max_split_items(shape, limits);
  // A prefix is one item, or is cut into items of about an even share. Rounding at most doubles the number of these
  // items.
  const int64_t shared = max_shared_queries(shape, limits) > 0 ? limits.rows + 2 * splits(shape) : 0;
  return max_bases(shape, limits) * (shape.streaming ? 2 : 1) + max_split_items(shape, limits) + shared;
}

int64_t WorkPlan::max_split_items(const WorkShape& shape, const BatchLimits& limits) noexcept {
  if (shape.key_splits > 0) return max_bases(shape, limits) * shape.key_splits * (shape.streaming ? 2 : 1);
  // The number of key ranges is rounded up for each range of heads, so there are at most 2 * splits() such items.
  return 2 * splits(shape) + (splits(shape) > 0 && shape.fixed_splits ? kMaxFixedItems : 0);
}

int64_t WorkPlan::max_tiles(const WorkShape& shape, const BatchLimits& limits) noexcept {
  return (shape.streaming || shape.key_splits > 0 ? max_bases(shape, limits) : 0) + 2 * splits(shape) +
         (max_shared_queries(shape, limits) > 0 ? limits.rows : 0);
}

int64_t WorkPlan::max_shared_queries(const WorkShape& shape, const BatchLimits& limits) noexcept {
  if (shape.sharing == PrefixSharing::kNever || shape.fixed_splits || !kernels::hides_nothing(shape.visible)) return 0;
  const int64_t queries = std::min(limits.tokens, limits.rows * shape.tiling.decode_max_queries);
  return std::min(kSharedParts * queries, kMaxSharedFloats / (shape.num_q_heads * (int64_t{shape.v_head_dim} + 2)));
}

int64_t WorkPlan::max_partial_floats(const WorkShape& shape, const BatchLimits& limits) noexcept {
  const int64_t decode = int64_t{shape.tiling.decode_max_queries} * shape.num_q_heads;
  const int64_t tile = std::min<int64_t>(shape.tiling.query_tile, limits.tokens);
  const int64_t prefill = tile * std::min(shape.tiling.heads_per_item, shape.num_kv_heads) * group_size(shape);
  // A range of keys is split only if it costs more than an even share. So at most splits() ranges are split, into at
  // most twice as many items. In addition, each query and head of a streaming row has two states.
  const int64_t split_floats = shape.fixed_splits
                                   ? (splits(shape) > 0 ? kMaxFixedFloats : 0)
                                   : 2 * splits(shape) * std::max(decode, prefill) * (shape.v_head_dim + 2);
  const int64_t streaming = shape.streaming ? 2 * limits.tokens : 0;
  const int64_t queries = max_shared_queries(shape, limits) + streaming;
  return split_floats + queries * shape.num_q_heads * (shape.v_head_dim + 2);
}

int64_t WorkPlan::bytes_needed(const WorkShape& shape, const BatchLimits& limits) noexcept {
  const int64_t shared = max_shared_queries(shape, limits);
  return max_items(shape, limits) * static_cast<int64_t>(sizeof(kvc_backend_item)) +
         max_tiles(shape, limits) * static_cast<int64_t>(sizeof(kvc_backend_tile)) +
         shared * static_cast<int64_t>(sizeof(kvc_backend_span) + sizeof(int64_t)) +
         (shared > 0 ? KeySet::bytes_needed(limits.rows) + PrefixTrie::bytes_needed(limits.rows) +
                           limits.rows * static_cast<int64_t>(sizeof(Prefix) + sizeof(RowShare))
                     : 0);
}

WorkPlan::WorkPlan(const WorkShape& shape, const BatchLimits& limits)
    : shape_(shape),
      max_split_items_(max_split_items(shape, limits)),
      group_size_(group_size(shape)),
      max_shared_queries_(max_shared_queries(shape, limits)),
      first_pages_(max_shared_queries_ > 0 ? limits.rows : 0),
      trie_(max_shared_queries_ > 0 ? limits.rows : 0),
      shares_(max_shared_queries_ > 0 ? limits.rows : 0) {
  items_.reserve(static_cast<size_t>(max_items(shape, limits)));
  tiles_.reserve(static_cast<size_t>(max_tiles(shape, limits)));
  spans_.reserve(static_cast<size_t>(max_shared_queries_));
  parts_.reserve(static_cast<size_t>(max_shared_queries_));
  prefixes_.reserve(static_cast<size_t>(shares_.size()));
}

WorkPlan::WorkPlan(int64_t max_items, int64_t max_tiles) : max_split_items_(max_items), first_pages_(0), trie_(0) {
  items_.reserve(static_cast<size_t>(max_items));
  tiles_.reserve(static_cast<size_t>(max_tiles));
}

void WorkPlan::set_shape(const WorkShape& shape) noexcept {
  shape_ = shape;
  group_size_ = group_size(shape);
}

kernels::VisibleRule WorkPlan::rule_of(const kvc_backend_rows& rows, int32_t row) const noexcept {
  return kernels::rule_of_row(shape_.visible, &rows, row);
}

int32_t WorkPlan::first_key(const kvc_backend_rows& rows, int32_t row, int32_t position) const noexcept {
  return kernels::visible_begin(rule_of(rows, row), position);
}

// Makes the base of queries [q_begin, q_end) of a row, with their ranges of keys. The caller must set the heads.
WorkPlan::Base WorkPlan::make_base(const kvc_backend_rows& rows, int32_t row, int32_t q_begin,
                                   int32_t q_end) const noexcept {
  const int32_t length = rows.kv_lengths[row];
  const int32_t first_index = length - (rows.token_begin[row + 1] - rows.token_begin[row]);
  Base base;
  base.num_parts = 1;
  kvc_backend_item& keys = base.parts[0];
  keys = {};
  keys.row = row;
  keys.q_begin = q_begin;
  keys.q_end = q_end;
  keys.tile = -1;
  keys.partial_offset = -1;
  if (plain_) {
    keys.key_end = std::max(0, kernels::causal_end(first_index + q_end - 1));
    keys.key_begin = std::min(kernels::visible_begin(shape_.visible, first_index + q_begin), keys.key_end);
    return base;
  }
  // Nodes of a tree have positions from tree_begin on. The position of a key is never higher than its index.
  const bool tree = rows.tree_begin != nullptr && rows.tree_begin[row] < length;
  const bool of_step = (flags_ & KVC_ATTEND_STEP_WINDOW) != 0;
  const int32_t first_position = tree ? rows.tree_begin[row] : first_index + (of_step ? 0 : q_begin);
  const kernels::VisibleRule rule = rule_of(rows, row);
  keys.key_begin = kernels::visible_begin(rule, first_position);
  const int32_t last = shape_.by_position ? rows.positions[rows.token_begin[row] + q_end - 1] : first_index + q_end - 1;
  keys.key_end = std::max(0, kernels::causal_end(last));
  if (rows.key_ends != nullptr && (flags_ & KVC_ATTEND_NO_SPANS) == 0) {
    const int32_t* ends = rows.key_ends + rows.token_begin[row];
    keys.key_end = *std::max_element(ends + q_begin, ends + q_end);
  }
  if ((flags_ & KVC_ATTEND_NON_CAUSAL) != 0) keys.key_end = length;
  if (rule.sinks > 0) {
    base.num_parts = 2;
    base.parts[1] = keys;
    keys.part = KVC_BACKEND_PART_SINKS;
    keys.key_begin = 0;
    // In a tree, nodes that are sinks can have indices of `sinks` and above, so the range is not cut there.
    if (!tree || first_position >= rule.sinks) keys.key_end = kernels::visible_sinks(rule, keys.key_end);
  }
  const int32_t shared = prefixes_.empty() ? 0 : shares_[row].keys;
  for (int32_t i = 0; i < base.num_parts; ++i) {
    kvc_backend_item& part = base.parts[i];
    part.key_begin = std::max(part.key_begin, shared);
    if ((flags_ & KVC_ATTEND_PAST) != 0) part.key_end = std::min(part.key_end, first_index);
    if ((flags_ & KVC_ATTEND_SELF) != 0) part.key_begin = std::max(part.key_begin, first_index);
    part.key_begin = std::min(part.key_begin, part.key_end);  // an item without keys writes an empty state
    if (listed_keys_ == kNoLists) continue;
    part.key_end = std::min(listed_keys_, part.key_end - part.key_begin);
    part.key_begin = 0;
  }
  // If one of the two ranges is empty, drop it.
  if (base.num_parts == 2 && base.parts[0].key_begin == base.parts[0].key_end)
    base.parts[0] = base.parts[--base.num_parts];
  if (base.num_parts == 2 && base.parts[1].key_begin == base.parts[1].key_end) --base.num_parts;
  return base;
}

template <class Visit>
void WorkPlan::for_each_base(const kvc_backend_rows& rows, Visit visit) const noexcept {
  const kvc_backend_tiling& tiling = shape_.tiling;
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    const int32_t queries = rows.token_begin[row + 1] - rows.token_begin[row];
    if (queries == 0 || rows.kv_lengths[row] < 0) continue;
    const bool decode = queries <= tiling.decode_max_queries;
    const int32_t tile = decode ? queries : tiling.query_tile;
    const int32_t heads = decode ? shape_.num_kv_heads : tiling.heads_per_item;
    for (int32_t t = decode ? 1 : static_cast<int32_t>(ceil_div(queries, tile)); t-- > 0;) {
      Base base = make_base(rows, row, t * tile, std::min(queries, (t + 1) * tile));
      for (int32_t h = 0; h < shape_.num_kv_heads; h += heads) {
        for (int32_t i = 0; i < base.num_parts; ++i) {
          base.parts[i].head_begin = h;
          base.parts[i].head_end = std::min(shape_.num_kv_heads, h + heads);
        }
        visit(base);
      }
    }
  }
}

int64_t WorkPlan::cost(const kvc_backend_item& item) const noexcept {
  const int64_t queries = item.q_end - item.q_begin;
  const int64_t rows = listed_keys_ == kNoLists
                           ? std::max(queries * group_size_, kMemoryBoundQueries)
                           : queries * std::max(group_size_, kMemoryBoundQueries);  // each query reads its own keys
  return int64_t{item.key_end - item.key_begin} * (item.head_end - item.head_begin) * rows;
}

int64_t WorkPlan::state_floats() const noexcept { return int64_t{shape_.num_q_heads} * (shape_.v_head_dim + 2); }

// If all rows are decode rows and plain_, makes their bases the items, and adds up their costs. This takes less time
// than for_each_base, because each item is written only once. Returns false at the first other row.
bool WorkPlan::list_decode_rows(const kvc_backend_rows& rows, int64_t* total, int64_t* most) noexcept {
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    const int32_t queries = rows.token_begin[row + 1] - rows.token_begin[row], length = rows.kv_lengths[row];
    if (queries == 0 || length < 0) continue;
    if (queries > shape_.tiling.decode_max_queries) return false;
    kvc_backend_item& item = items_.emplace_back();
    item.row = row;
    item.q_end = queries;
    item.head_end = shape_.num_kv_heads;
    item.key_end = length;
    item.key_begin = std::min(kernels::visible_begin(shape_.visible, length - queries), length);
    item.tile = -1;
    item.partial_offset = -1;
    const int64_t of_item = cost(item);
    *total += of_item;
    *most = std::max(*most, of_item);
  }
  return true;
}

void WorkPlan::build(const kvc_backend_rows& rows, uint32_t flags, const kvc_backend_tables* tables,
                     const int32_t* key_sets, int32_t listed_keys) noexcept {
  flags_ = flags;
  listed_keys_ = listed_keys;
  items_.clear();
  tiles_.clear();
  spans_.clear();
  parts_.clear();
  prefixes_.clear();
  partial_floats_ = 0;
  shared_queries_ = 0;
  fixed_items_ = fixed_floats_ = 0;
  const bool shares = tables != nullptr && max_shared_queries_ > 0 && listed_keys == kNoLists;
  if (shares && rows.num_rows > 1 && (flags & KVC_ATTEND_SELF) == 0 && any_share_a_page(rows, *tables, key_sets)) {
    find_prefixes(rows, *tables, key_sets);
  }
  plain_ = flags == 0 && listed_keys == kNoLists && prefixes_.empty() && !shape_.by_position &&
           shape_.visible.sinks == 0 && rows.key_ends == nullptr && rows.tree_begin == nullptr &&
           rows.stream_windows == nullptr && rows.key_begins == nullptr;
  // In most decode steps nothing is cut, and the items are the bases themselves. So each base becomes an item while the
  // costs are added up, and the plan is complete if no base costs more than an even share.
  bool whole = prefixes_.empty() && shape_.key_splits == 0;
  int64_t total = 0, most = 0;
  if (!whole || !plain_ || !list_decode_rows(rows, &total, &most)) {
    items_.clear();
    total = most = 0;
    for (const Prefix& prefix : prefixes_) total += cost(item_of(prefix));
    for_each_base(rows, [&](const Base& base) {
      for (int32_t i = 0; i < base.num_parts; ++i) {
        const int64_t of_part = cost(base.parts[i]);
        total += of_part;
        most = std::max(most, of_part);
      }
      whole = whole && base.num_parts == 1;
      if (whole) items_.push_back(base.parts[0]);
    });
  }
  int64_t target = splits(shape_) > 0 ? std::max<int64_t>(1, ceil_div(total, splits(shape_))) : INT64_MAX;
  if (whole && most <= target) return;
  const bool in_waves = shape_.tiling.resident_items > 0 && shape_.tiling.heads_per_item >= shape_.num_kv_heads;
  if (whole && in_waves && rows.num_tokens == rows.num_rows && !shape_.fixed_splits) {
    target = target_of_waves(total, most, target);
  }
  items_.clear();
  if (!prefixes_.empty()) emit_prefixes(rows, target);
  for_each_base(rows, [&](const Base& base) { emit(base, target); });
}

void WorkPlan::fill(const kvc_backend_rows& rows, const kvc_backend_tables& tables, const int32_t* key_sets,
                    const kvc_backend_layer& layer, kvc_backend_plan* out) const noexcept {
  out->arrays = {rows, tables, key_sets, items_.data(), tiles_.data(), spans_.data(), parts_.data()};
  out->staged = nullptr;
  out->layer = &layer;
  out->flags = flags_;
  const auto count = [](const auto& array, int64_t* now, int64_t* most) {
    *now = static_cast<int64_t>(array.size());
    *most = static_cast<int64_t>(array.capacity());
  };
  count(items_, &out->num_items, &out->max_items);
  count(tiles_, &out->num_tiles, &out->max_tiles);
  count(spans_, &out->num_spans, &out->max_spans);
  count(parts_, &out->num_parts, &out->max_parts);
  out->max_split_items = max_split_items_;
  out->fold_keys = shape_.fixed_splits ? shape_.tiling.split_align : 0;
  out->device_item_queries = 0;
  out->exact_items = plain_ ? 1 : 0;
}

bool WorkPlan::fixed_splits_fit(int64_t blocks, int64_t states) noexcept {
  const int64_t floats = blocks * states * (shape_.v_head_dim + 2);
  if (fixed_items_ + blocks > kMaxFixedItems || fixed_floats_ + floats > kMaxFixedFloats) return false;
  fixed_items_ += blocks;
  fixed_floats_ += floats;
  return true;
}

int64_t WorkPlan::states_of(const kvc_backend_item& item) const noexcept {
  return int64_t{item.q_end - item.q_begin} * (item.head_end - item.head_begin) * group_size_;
}

// Returns the number of ranges into which the keys of `part` must be cut if its heads are not cut. It is key_splits, if
// that is set. Otherwise it is the cost of the part divided by target_cost, limited so that no range is shorter than
// min_split_keys.
int64_t WorkPlan::key_parts(const kvc_backend_item& part, int64_t target_cost) const noexcept {
  if (shape_.key_splits > 0) return shape_.key_splits;
  const int64_t keys = part.key_end - part.key_begin;
  return std::max<int64_t>(1, std::min(ceil_div(cost(part), target_cost), keys / shape_.tiling.min_split_keys));
}

// Returns the number of items that the bases in items_ become. Stops counting above `most`.
int64_t WorkPlan::count_parts(int64_t target_cost, int64_t most) const noexcept {
  int64_t count = 0;
  for (size_t i = 0; i < items_.size() && count <= most; ++i) count += key_parts(items_[i], target_cost);
  return count;
}

// Returns the largest cost of an item with which the batch takes the least time, if resident_items items run at a time.
// If there are a few items more than this number, these few run alone in the end, while most of the device is idle.
// total: the cost of all bases in items_. most: the largest of these costs. even: the result if there are too many rows
// for two full waves of items.
int64_t WorkPlan::target_of_waves(int64_t total, int64_t most, int64_t even) const noexcept {
  const kvc_backend_tiling& tiling = shape_.tiling;
  const kvc_backend_item& first = items_.front();
  // The cost of the shortest part. An item needs about half of this time to begin and to end.
  const int64_t shortest = cost(first) / std::max(1, first.key_end - first.key_begin) * tiling.min_split_keys;
  int64_t best = even, least = INT64_MAX;
  for (int64_t waves = 1; waves <= 2; ++waves) {
    const int64_t items = std::min(waves * tiling.resident_items, 2 * splits(shape_));
    if (count_parts(most, items) > items) continue;
    // Finds about the smallest target that fits. Often it is the even share.
    int64_t low = std::min(most, std::max({shortest, ceil_div(total, items), ceil_div(most, kMostParts)})), high = most;
    if (count_parts(low, items) <= items) high = low;
    while (high - low > low / 16 + 1) {
      const int64_t middle = low + (high - low) / 2;
      (count_parts(middle, items) <= items ? high : low) = middle;
    }
    const int64_t time = waves * (high + shortest / 2);
    if (time >= least) continue;
    least = time;
    best = high;
  }
  return best;
}

// Adds the items of `part`, with its keys cut into at most `wanted` ranges. With fixed splits, each range is one block,
// or the keys are not cut.
void WorkPlan::split(const kvc_backend_item& part, int64_t wanted) noexcept {
  kernels::KeySplit cut = kernels::split_keys(part.key_begin, part.key_end, shape_.tiling.split_align, wanted);
  if (shape_.fixed_splits && wanted > 1) {
    cut.blocks_each = fixed_splits_fit(cut.blocks, states_of(part)) ? 1 : cut.blocks;
  }
  for (int64_t i = 0; i < kernels::count_parts(cut); ++i) {
    kvc_backend_item item = part;
    kernels::keys_of_part(cut, i, &item.key_begin, &item.key_end);
    KVC_ASSERT(item.key_begin >= 0 && item.key_begin <= item.key_end, item.key_begin, item.key_end);
    KVC_ASSERT(items_.size() < items_.capacity(), items_.size(), items_.capacity());
    items_.push_back(item);
  }
}

// Returns how many kv heads each item of `part` has. An item gets only some of the heads if their K and V are at least
// kMinHeadItemBytes, and not more than kMaxHeadItemBytes.
int64_t WorkPlan::heads_each(const kvc_backend_item& part, int64_t target_cost) const noexcept {
  const int64_t heads = part.head_end - part.head_begin, least = shape_.tiling.heads_per_item;
  const int64_t bytes = heads * (part.key_end - part.key_begin) * shape_.key_bytes;
  const int64_t wanted = std::min(ceil_div(cost(part), target_cost), bytes / kMinHeadItemBytes);
  // An item keeps all heads in two cases. If the row shares a prefix, its tile needs the states of all heads. If the
  // caller sets the number of splits, they must be along the keys.
  if (shape_.key_splits > 0 || (!prefixes_.empty() && shares_[part.row].tile >= 0)) return heads;
  if (wanted < 2 || heads <= least || bytes > wanted * kMaxHeadItemBytes) return heads;
  return least * ceil_div(ceil_div(heads, least), wanted);
}

void WorkPlan::emit(Base base, int64_t target_cost) noexcept {
  // The state of the window must be complete before it is merged with that of the sinks. If the window were cut, its
  // parts would be merged with the sinks one by one. This would give other bits. So with fixed splits, neither range is
  // cut.
  if (shape_.fixed_splits && base.num_parts > 1) target_cost = INT64_MAX;
  const kvc_backend_item& last = base.parts[base.num_parts - 1];  // the window, or all keys
  const int64_t heads = heads_each(last, target_cost), begin = last.head_begin, end = last.head_end;
  int64_t wanted[2];
  for (int32_t i = 0; i < base.num_parts; ++i) {
    wanted[i] = ceil_div(key_parts(base.parts[i], target_cost), ceil_div(end - begin, heads));
  }
  for (int64_t head = begin; head < end; head += heads) {
    for (int32_t i = 0; i < base.num_parts; ++i) {
      base.parts[i].head_begin = static_cast<int32_t>(head);
      base.parts[i].head_end = static_cast<int32_t>(std::min(end, head + heads));
    }
    emit_tile(base, wanted);
  }
}

void WorkPlan::emit_tile(const Base& base, const int64_t* wanted) noexcept {
  const auto item_begin = static_cast<int32_t>(items_.size());
  for (int32_t i = 0; i < base.num_parts; ++i) split(base.parts[i], wanted[i]);
  const auto item_end = static_cast<int32_t>(items_.size());
  const int32_t shared_tile = prefixes_.empty() ? -1 : shares_[base.parts[0].row].tile;
  if (item_end - item_begin == 1 && shared_tile < 0) return;
  const auto tile = shared_tile >= 0 ? shared_tile : static_cast<int32_t>(tiles_.size());
  if (shared_tile < 0) {
    KVC_ASSERT(tiles_.size() < tiles_.capacity(), tiles_.size(), tiles_.capacity());
    tiles_.push_back({});
  }
  tiles_[static_cast<size_t>(tile)].item_begin = item_begin;
  tiles_[static_cast<size_t>(tile)].item_end = item_end;
  const int64_t floats = states_of(base.parts[0]) * (shape_.v_head_dim + 2);
  for (int32_t i = item_begin; i < item_end; ++i) {
    kvc_backend_item& item = items_[static_cast<size_t>(i)];
    item.tile = tile;
    item.partial_offset = partial_floats_;
    partial_floats_ += floats;
  }
}

}  // namespace kvc

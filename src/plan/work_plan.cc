#include "plan/work_plan.h"

#include <algorithm>
#include <tuple>

#include "base/checked.h"

namespace kvc {
namespace {

// Items that each thread should find, so that uneven ones and late threads even out.
constexpr int64_t kItemsPerThread = 4;
// Below so many queries a head group, reading K and V costs more than computing with them.
constexpr int64_t kMemoryBoundQueries = 8;

int64_t splits(const WorkShape& shape) noexcept {
  return shape.num_threads > 1 ? kItemsPerThread * shape.num_threads : 0;
}

int64_t group_size(const WorkShape& shape) noexcept { return shape.num_q_heads / shape.num_kv_heads; }

int64_t head_parts(const WorkShape& shape) noexcept {
  return ceil_div(shape.num_kv_heads, shape.tiling.heads_per_item);
}

}  // namespace

bool operator==(const WorkShape& a, const WorkShape& b) noexcept {
  const auto key = [](const WorkShape& s) {
    return std::tie(s.num_q_heads, s.num_kv_heads, s.v_head_dim, s.window_tokens, s.chunk_tokens,
                    s.tiling.decode_max_queries, s.tiling.query_tile, s.tiling.heads_per_item, s.tiling.split_align,
                    s.tiling.min_split_keys, s.num_threads);
  };
  return key(a) == key(b);
}

int64_t WorkPlan::max_items(const WorkShape& shape, const BatchLimits& limits) noexcept {
  const int64_t prefill_rows = limits.tokens / (shape.tiling.decode_max_queries + 1);
  const int64_t tiles = limits.tokens / shape.tiling.query_tile + prefill_rows;
  return limits.rows + tiles * head_parts(shape) + splits(shape);
}

int64_t WorkPlan::max_tiles(const WorkShape& shape) noexcept { return splits(shape); }

int64_t WorkPlan::max_partial_floats(const WorkShape& shape, const BatchLimits& limits) noexcept {
  const int64_t decode = int64_t{shape.tiling.decode_max_queries} * shape.num_q_heads;
  const int64_t tile = std::min<int64_t>(shape.tiling.query_tile, limits.tokens);
  const int64_t prefill = tile * std::min(shape.tiling.heads_per_item, shape.num_kv_heads) * group_size(shape);
  // A base item is split only if it costs more than an even share, so at most splits() are, into twice as many parts.
  return 2 * splits(shape) * std::max(decode, prefill) * (shape.v_head_dim + 2);
}

WorkPlan::WorkPlan(const WorkShape& shape, const BatchLimits& limits) : shape_(shape) {
  items_.reserve(static_cast<size_t>(max_items(shape, limits)));
  tiles_.reserve(static_cast<size_t>(max_tiles(shape)));
}

// First key that a query at `position` sees, and with it every later one of its tile.
int32_t WorkPlan::first_key(int32_t position) const noexcept {
  if (shape_.chunk_tokens > 0) return position - position % shape_.chunk_tokens;
  return shape_.window_tokens > 0 ? std::max(0, position - shape_.window_tokens + 1) : 0;
}

template <class Visit>
void WorkPlan::for_each_base_item(const kvc_backend_rows& rows, Visit visit) const noexcept {
  const kvc_backend_tiling& tiling = shape_.tiling;
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    const int32_t queries = rows.token_begin[row + 1] - rows.token_begin[row];
    if (queries == 0 || rows.kv_lengths[row] == 0) continue;
    const int32_t first_index = rows.kv_lengths[row] - queries;
    // Nodes of a tree are at positions from tree_begin on, and no key's position is above its index.
    const bool tree = rows.tree_begin != nullptr && rows.tree_begin[row] < rows.kv_lengths[row];
    const bool decode = queries <= tiling.decode_max_queries;
    const int32_t tile = decode ? queries : tiling.query_tile;
    const int32_t heads = decode ? shape_.num_kv_heads : tiling.heads_per_item;
    for (int32_t t = static_cast<int32_t>(ceil_div(queries, tile)); t-- > 0;) {
      kvc_backend_item item = {};
      item.row = row;
      item.q_begin = t * tile;
      item.q_end = std::min(queries, item.q_begin + tile);
      item.key_end = first_index + item.q_end;
      item.key_begin = first_key(tree ? rows.tree_begin[row] : first_index + item.q_begin);
      if ((flags_ & KVC_ATTEND_NON_CAUSAL) != 0) item.key_end = rows.kv_lengths[row];
      if ((flags_ & KVC_ATTEND_PAST) != 0) item.key_end = std::min(item.key_end, first_index);
      if ((flags_ & KVC_ATTEND_SELF) != 0) item.key_begin = std::max(item.key_begin, first_index);
      item.key_begin = std::min(item.key_begin, item.key_end);  // sees nothing: writes that
      item.tile = -1;
      item.partial_offset = -1;
      for (int32_t h = 0; h < shape_.num_kv_heads; h += heads) {
        item.head_begin = h;
        item.head_end = std::min(shape_.num_kv_heads, h + heads);
        visit(item);
      }
    }
  }
}

int64_t WorkPlan::cost(const kvc_backend_item& item) const noexcept {
  const int64_t queries = (item.q_end - item.q_begin) * group_size(shape_);
  return int64_t{item.key_end - item.key_begin} * (item.head_end - item.head_begin) *
         std::max(queries, kMemoryBoundQueries);
}

void WorkPlan::build(const kvc_backend_rows& rows, uint32_t flags) noexcept {
  flags_ = flags;
  items_.clear();
  tiles_.clear();
  partial_floats_ = 0;
  int64_t total = 0;
  if (splits(shape_) > 0) for_each_base_item(rows, [&](const kvc_backend_item& item) { total += cost(item); });
  const int64_t target = splits(shape_) > 0 ? std::max<int64_t>(1, ceil_div(total, splits(shape_))) : INT64_MAX;
  for_each_base_item(rows, [&](const kvc_backend_item& item) { emit(item, target); });
}

void WorkPlan::emit(const kvc_backend_item& base, int64_t target_cost) noexcept {
  const kvc_backend_tiling& tiling = shape_.tiling;
  const int64_t keys = base.key_end - base.key_begin;
  const int64_t wanted = std::min(ceil_div(cost(base), target_cost), keys / tiling.min_split_keys);
  const int64_t first_block = base.key_begin / tiling.split_align;
  const int64_t blocks = ceil_div(base.key_end, tiling.split_align) - first_block;
  const int64_t blocks_each = wanted > 1 ? ceil_div(blocks, wanted) : blocks;
  if (blocks_each >= blocks) {
    items_.push_back(base);
    return;
  }
  const int64_t queries = int64_t{base.q_end - base.q_begin} * (base.head_end - base.head_begin) * group_size(shape_);
  const auto tile = static_cast<int32_t>(tiles_.size());
  const auto item_begin = static_cast<int32_t>(items_.size());
  for (int64_t block = 0; block < blocks; block += blocks_each) {
    kvc_backend_item item = base;
    const int64_t begin = (first_block + block) * tiling.split_align;
    const int64_t end = begin + blocks_each * tiling.split_align;
    item.key_begin = static_cast<int32_t>(std::max<int64_t>(begin, base.key_begin));
    item.key_end = static_cast<int32_t>(std::min<int64_t>(end, base.key_end));
    item.tile = tile;
    item.partial_offset = partial_floats_;
    partial_floats_ += queries * (shape_.v_head_dim + 2);
    items_.push_back(item);
  }
  tiles_.push_back({item_begin, static_cast<int32_t>(items_.size())});
}

}  // namespace kvc

// WorkPlan: cuts one layer's attention over a batch into work items that any thread can run in any order.
//
// A row with few new tokens (decode) becomes items over all kv heads, split along its keys; a row with many (prefill)
// becomes tiles of queries for a few heads. What is still too large for an even share is split along the keys, at
// multiples of split_align (absolute positions). Prefill tiles come last first: the longest work starts first.
//
// Pure: a function of its arguments. Thread safety: none. Allocates in the constructor only.
// Invariants, for each row, query and head: the items that cover it have key ranges that follow one another without gap
// or overlap, and together cover every key that the query sees; items of a tile are consecutive and in key order.
// From: split-KV as in Flash-Decoding; balanced item lists as in FlashInfer's plan.
#pragma once

#include <cstdint>
#include <vector>

#include "kvcache_backend.h"

namespace kvc {

// What of a layer decides how its work is cut.
struct WorkShape {
  int32_t num_q_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t v_head_dim = 1;
  int32_t window_tokens = 0;  // at most one of the two: which keys a query sees, as in kvc_backend_layer
  int32_t chunk_tokens = 0;
  kvc_backend_tiling tiling = {};
  int32_t num_threads = 1;  // items that run at once

  friend bool operator==(const WorkShape& a, const WorkShape& b) noexcept;
};

// The largest batch: sizes buffers.
struct BatchLimits {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t tree_nodes = 0;  // of a row, those of earlier steps included
};

class WorkPlan {
 public:
  // Room for any batch within `limits`. Throws std::bad_alloc.
  WorkPlan(const WorkShape& shape, const BatchLimits& limits);

  // flags: the KVC_ATTEND_* of the call that the plan is for; they decide which keys items cover.
  void build(const kvc_backend_rows& rows, uint32_t flags = 0) noexcept;

  const std::vector<kvc_backend_item>& items() const noexcept { return items_; }
  const std::vector<kvc_backend_tile>& tiles() const noexcept { return tiles_; }
  int64_t partial_floats() const noexcept { return partial_floats_; }
  const WorkShape& shape() const noexcept { return shape_; }

  // The most that build can make for a shape.
  static int64_t max_items(const WorkShape& shape, const BatchLimits& limits) noexcept;
  static int64_t max_tiles(const WorkShape& shape) noexcept;
  static int64_t max_partial_floats(const WorkShape& shape, const BatchLimits& limits) noexcept;

 private:
  int32_t first_key(int32_t position) const noexcept;
  template <class Visit>
  void for_each_base_item(const kvc_backend_rows& rows, Visit visit) const noexcept;
  int64_t cost(const kvc_backend_item& item) const noexcept;
  void emit(const kvc_backend_item& base, int64_t target_cost) noexcept;

  WorkShape shape_;
  std::vector<kvc_backend_item> items_;
  std::vector<kvc_backend_tile> tiles_;
  int64_t partial_floats_ = 0;
  uint32_t flags_ = 0;
};

}  // namespace kvc

// WorkPlan: cuts one layer's attention over a batch into work items. Any thread can run any item, in any order.
//
// A row with few new tokens (decode) becomes an item over all kv heads. A row with many new tokens (prefill) becomes
// tiles of queries for a few kv heads. An item that costs more than an even share of the work is split. Small decode
// items are split by heads, so that no states are merged. All other items are split along the keys, at multiples of
// split_align. The last prefill tiles of a row come first, because they have the most keys. A query of a streaming row
// has one rotation for the sinks and another rotation for the window. So there is an item for the sinks and an item for
// the window, and their states are merged like the states of a split. Rows with few new tokens that begin with the same
// pages can attend to these pages together, if that is cheaper (prefix_trie.h, prefix_cost.h, shared_work.cc). The
// items over the shared pages come before the items over the rest of each row.
//
// Pure: a function of its arguments. Thread safety: none. Allocates in the constructor only.
// Invariants, for each row, query and head
// 1. The key ranges of its items follow each other without gap or overlap, and cover every key that the query sees.
// 2. Items of a tile are consecutive and in the order of their keys. The parts of shared prefixes have earlier keys.
// From: split-KV as in Flash-Decoding; balanced item lists as in FlashInfer's plan; shared prefixes as in Hydragen and
// FlashInfer's cascade.
#pragma once

#include <cstdint>
#include <vector>

#include "base/lazy_array.h"
#include "kernels/common/visible.h"
#include "kvcache_backend.h"
#include "plan/key_set.h"
#include "plan/prefix_trie.h"

namespace kvc {

enum class PrefixSharing : int32_t { kByCost, kNever, kAlways };

// The properties of a layer that decide how its work is cut.
struct WorkShape {
  int32_t num_q_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t head_dim = 1;
  int32_t v_head_dim = 1;
  int32_t key_bytes = 1;  // bytes of K and V of one token and kv head
  int32_t page_size = 1;
  kernels::VisibleRule visible = {};  // which keys a query of the layer sees
  bool streaming = false;             // rows may have streaming windows
  bool by_position = false;           // rows are compressed: positions alone decide which keys a query sees
  kvc_backend_tiling tiling = {};
  int32_t num_threads = 1;  // number of items that run at once
  // If set, an item is split at every multiple of split_align, or not at all. So the bits of outputs do not depend on
  // the splits.
  bool fixed_splits = false;
  int32_t key_splits = 0;  // number of key ranges of an item, at most one for each split_align keys; 0 = by cost
  PrefixSharing sharing = PrefixSharing::kByCost;
  int32_t key_sets_class = -1;  // the RoPE class that rotates keys on read, if it has several factor sets; otherwise -1

  // In a deterministic cache, each state that is merged is over at most this number of keys. The number is the same in
  // every cache, because the bits of outputs depend on it.
  static constexpr int32_t kFoldKeys = 1024;
  void fix_splits() noexcept {
    fixed_splits = true;
    tiling.split_align = kFoldKeys;
  }

  friend bool operator==(const WorkShape& a, const WorkShape& b) noexcept;
};

// The limits of a batch, for which buffers are allocated.
struct BatchLimits {
  int64_t rows = 0;
  int64_t tokens = 0;
  int64_t tree_nodes = 0;  // largest number of nodes of one row, nodes of earlier steps included
  bool streaming = false;  // sequences may have streaming windows
  // If set, sinks always have their own item. So the bits of outputs do not depend on whether a row is longer than its
  // window.
  bool sinks_apart = false;
  int64_t draft_states = 0;  // largest number of nodes of a row whose recurrent states are kept
};

class WorkPlan {
 public:
  // Allocates memory for any batch within `limits`. Throws std::bad_alloc.
  WorkPlan(const WorkShape& shape, const BatchLimits& limits);

  // Allocates memory for these numbers of entries. set_shape must set the shape before each build. Such a plan shares
  // no prefixes. Throws std::bad_alloc.
  WorkPlan(int64_t max_items, int64_t max_tiles);
  // Sets the shape of the next build.
  void set_shape(const WorkShape& shape) noexcept;

  // flags: KVC_ATTEND_* of the call, which decide the keys that items cover. tables: nullable; the page lists in which
  // shared prefixes are found. If it is null, no prefix is shared. key_sets: nullable; [tokens], the RoPE factor set of
  // each token. Rows with different sets share no prefix. listed_keys: in a call with lists, the largest number of keys
  // of a list; otherwise kNoLists. With lists, the key ranges of items count places in the lists, and no prefix is
  // shared.
  void build(const kvc_backend_rows& rows, uint32_t flags = 0, const kvc_backend_tables* tables = nullptr,
             const int32_t* key_sets = nullptr, int32_t listed_keys = kNoLists) noexcept;
  static constexpr int32_t kNoLists = -1;
  static int32_t listed_keys(const kvc_backend_lists& lists) noexcept {
    return lists.block_tokens == 0 ? kNoLists : lists.num_entries * lists.block_tokens;
  }

  // Writes the last build to *out for a backend. It does not write device, counters, partials and slot, which the
  // caller sets for all its plans. rows, tables and key_sets (nullable) must be the arguments of the build, as in
  // kvc_backend_plan_arrays. layer is any layer of the work class, and must exist as long as the plan. The max_* fields
  // are also valid before the first build.
  void fill(const kvc_backend_rows& rows, const kvc_backend_tables& tables, const int32_t* key_sets,
            const kvc_backend_layer& layer, kvc_backend_plan* out) const noexcept;

  // Returns the first key after the sinks that a query of `row` at `position` or later may see.
  int32_t first_key(const kvc_backend_rows& rows, int32_t row, int32_t position) const noexcept;

  const std::vector<kvc_backend_item>& items() const noexcept { return items_; }
  const std::vector<kvc_backend_tile>& tiles() const noexcept { return tiles_; }
  const std::vector<kvc_backend_span>& spans() const noexcept { return spans_; }
  const std::vector<int64_t>& parts() const noexcept { return parts_; }
  // The number of prefixes to which several rows attend together.
  int64_t num_prefix_groups() const noexcept { return static_cast<int64_t>(prefixes_.size()); }
  int64_t partial_floats() const noexcept { return partial_floats_; }
  const WorkShape& shape() const noexcept { return shape_; }

  // The largest numbers of items and tiles that build can make for a shape.
  static int64_t max_items(const WorkShape& shape, const BatchLimits& limits) noexcept;
  static int64_t max_tiles(const WorkShape& shape, const BatchLimits& limits) noexcept;
  // The value of kvc_backend_plan.max_split_items.
  static int64_t max_split_items(const WorkShape& shape, const BatchLimits& limits) noexcept;
  // The largest number of partial states that the rows of shared prefixes write: the states of the shared items, and of
  // the rows' other items. The states of all heads of a query count as one. This number is also an upper bound of the
  // sizes of spans() and parts().
  static int64_t max_shared_queries(const WorkShape& shape, const BatchLimits& limits) noexcept;
  static int64_t max_partial_floats(const WorkShape& shape, const BatchLimits& limits) noexcept;
  // The number of bytes of host memory of a plan.
  static int64_t bytes_needed(const WorkShape& shape, const BatchLimits& limits) noexcept;

 private:
  kernels::VisibleRule rule_of(const kvc_backend_rows& rows, int32_t row) const noexcept;
  // The rows [begin, end) of trie_ attend together to the keys [key_begin, key_end). An item has at most keys_each keys
  // and heads_each kv heads. These keys are divided at multiples of split_align.
  struct Prefix {
    int32_t begin, end;
    int32_t key_begin, key_end;
    int32_t queries;
    int32_t keys_each, heads_each;
  };
  // The shared items of one row.
  struct RowShare {
    int32_t keys;   // number of the row's first keys that shared items cover
    int32_t parts;  // number of states that shared items write for a query of the row
    int32_t items;  // number of shared items that write these states
    int32_t tile;   // tile that merges these states; -1 = none
  };

  // The items for some queries and heads before they are split: one item over all keys, or one item for the sinks and
  // one for the window.
  struct Base {
    kvc_backend_item parts[2];
    int32_t num_parts;
  };
  Base make_base(const kvc_backend_rows& rows, int32_t row, int32_t q_begin, int32_t q_end) const noexcept;
  template <class Visit>
  void for_each_base(const kvc_backend_rows& rows, Visit visit) const noexcept;
  int64_t cost(const kvc_backend_item& item) const noexcept;
  int64_t heads_each(const kvc_backend_item& part, int64_t target_cost) const noexcept;
  int64_t key_parts(const kvc_backend_item& part, int64_t target_cost) const noexcept;
  int64_t count_parts(int64_t target_cost, int64_t most) const noexcept;
  int64_t target_of_waves(int64_t total, int64_t most, int64_t even) const noexcept;
  void split(const kvc_backend_item& part, int64_t wanted) noexcept;
  int64_t state_floats() const noexcept;
  bool fixed_splits_fit(int64_t blocks, int64_t states) noexcept;
  int64_t states_of(const kvc_backend_item& item) const noexcept;
  void emit(Base base, int64_t target_cost) noexcept;
  void emit_tile(const Base& base, const int64_t* wanted) noexcept;
  bool list_decode_rows(const kvc_backend_rows& rows, int64_t* total, int64_t* most) noexcept;
  // shared_work.cc
  bool any_share_a_page(const kvc_backend_rows& rows, const kvc_backend_tables& tables,
                        const int32_t* key_sets) noexcept;
  void find_prefixes(const kvc_backend_rows& rows, const kvc_backend_tables& tables, const int32_t* key_sets) noexcept;
  bool pays(const Prefix& prefix) const noexcept;
  kvc_backend_item item_of(const Prefix& prefix) const noexcept;
  void cut_prefix(Prefix* prefix, int64_t target_cost) noexcept;
  void emit_prefixes(const kvc_backend_rows& rows, int64_t target_cost) noexcept;
  void emit_prefix(const kvc_backend_rows& rows, const Prefix& prefix) noexcept;

  WorkShape shape_;
  int64_t max_split_items_ = 0;
  int64_t group_size_ = 1;  // number of q heads of a kv head
  int64_t max_shared_queries_ = 0;
  std::vector<kvc_backend_item> items_;
  std::vector<kvc_backend_tile> tiles_;
  std::vector<kvc_backend_span> spans_;
  std::vector<int64_t> parts_;
  KeySet first_pages_;  // scratch of any_share_a_page
  PrefixTrie trie_;
  std::vector<Prefix> prefixes_;
  LazyArray<RowShare> shares_;  // [rows]: written by the last build that searched for prefixes
  int64_t shared_queries_ = 0;  // as in max_shared_queries
  int64_t fixed_items_ = 0;     // number of items of split rows, if splits are fixed
  int64_t fixed_floats_ = 0;
  int64_t partial_floats_ = 0;
  uint32_t flags_ = 0;
  int32_t listed_keys_ = kNoLists;
  bool plain_ = false;  // the keys of a row depend only on its lengths and on the rule of the layer
};

}  // namespace kvc

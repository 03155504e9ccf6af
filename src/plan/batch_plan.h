// BatchPlan: the index arrays of one step, shared by all its layers: where each row's tokens are in q, k and v, at
// which positions, in which slots, and through which page lists they are read.
//
// Pure bookkeeping over the sequence store. Thread safety: none while built; read by any thread after. Allocates in the
// constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/lazy_array.h"
#include "kvcache_backend.h"
#include "plan/work_plan.h"
#include "sequence/sequence_store.h"

namespace kvc {

class BatchPlan {
 public:
  // Host memory of a plan: reserved at once, touched as far as batches go.
  static int64_t bytes_needed(const BatchLimits& limits, int32_t num_groups) noexcept {
    return (5 * limits.rows + 1 + limits.tokens) * 4 + num_groups * (2 * limits.rows * 4 + limits.tokens * 8) +
           most_nodes(limits) * static_cast<int64_t>(sizeof(kvc_backend_tree_node));
  }

  // Throws std::bad_alloc.
  BatchPlan(const BatchLimits& limits, int32_t num_groups);

  // slots[i] is row i's slot in the store, or -1 for an inert row; pages are reserved already.
  void build(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths) noexcept;
  // The rest of a batch with trees, whose nodes the store has: their intervals, and positions by depth.
  void add_trees(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths) noexcept;

  const kvc_backend_rows& rows() const noexcept { return rows_; }
  const kvc_backend_tables& tables(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].tables; }
  // [num_tokens]: slot of each token in the group; -1 for an inert row's tokens.
  const int64_t* slot_mapping(int32_t group) const noexcept {
    return groups_[static_cast<size_t>(group)].slot_mapping.data();
  }
  const int32_t* last_rows() const noexcept { return last_rows_.data(); }

 private:
  struct Group {
    LazyArray<int32_t> roots, levels;  // [rows]
    LazyArray<int64_t> slot_mapping;   // [tokens]
    kvc_backend_tables tables = {};
  };
  // Each tree row has a new token.
  static int64_t most_nodes(const BatchLimits& limits) noexcept {
    return (limits.rows < limits.tokens ? limits.rows : limits.tokens) * limits.tree_nodes;
  }

  LazyArray<int32_t> token_begin_;  // [rows + 1]
  LazyArray<int32_t> kv_lengths_;   // [rows]
  LazyArray<int32_t> last_rows_;    // [rows]
  LazyArray<int32_t> positions_;    // [tokens]
  LazyArray<int32_t> tree_begin_;   // [rows]
  LazyArray<int32_t> tree_offset_;  // [rows]
  LazyArray<kvc_backend_tree_node> tree_nodes_;
  std::vector<Group> groups_;
  kvc_backend_rows rows_ = {};
};

}  // namespace kvc

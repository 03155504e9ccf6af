// BatchPlan: the index arrays of one step, which all its layers share. For each row of the batch, they have the range
// of its tokens in q, k and v, the positions and slots of these tokens, and the page lists of the row.
//
// Pure bookkeeping over the sequence store. Thread safety: only one thread may build it; after that, any thread may
// read it. Allocates in the constructor only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache_backend.h"
#include "plan/step_array.h"
#include "plan/work_plan.h"
#include "sequence/sequence_store.h"

namespace kvc {

class BatchPlan {
 public:
  // Returns the number of bytes of host memory of a plan. The constructor reserves all of them, but only the parts that
  // batches use take memory.
  static int64_t bytes_needed(const BatchLimits& limits, int32_t num_groups) noexcept {
    return (5 * limits.rows + 1 + 2 * limits.tokens) * 4 + num_groups * (3 * limits.rows * 4 + limits.tokens * 12) +
           most_nodes(limits) * static_cast<int64_t>(sizeof(kvc_backend_tree_node)) +
           (limits.streaming ? (2 * limits.rows + limits.tokens) * 4 : 0);
  }

  // Throws std::bad_alloc.
  BatchPlan(const BatchLimits& limits, int32_t num_groups);

  // Builds the arrays of a batch. slots[i] is the index of the sequence of row i in the store, or -1 for an inert row.
  // The pages of the new tokens must be reserved before. encoder_group: as in the step's StepKind.
  void build(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths,
             int32_t encoder_group = -1) noexcept;
  // Completes a batch with token trees, whose nodes are in the store: adds the depth-first intervals of the nodes
  // (token_tree.h), and sets the position of each node by its depth.
  void add_trees(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths) noexcept;
  // Completes a batch with spans: for each token, adds the index after the last key that the token sees. span_ids:
  // [tokens], as in kvc_batch.
  void add_spans(const int32_t* span_ids) noexcept;
  // Adds the streaming windows of rows that are longer than their windows. With BatchLimits::sinks_apart, also adds the
  // windows of all rows with sinks. If the window of a row is not added, the row sees all keys. Call it after add_trees
  // and add_spans.
  void add_streams(const SequenceStore& store, std::span<const int32_t> slots) noexcept;

  // Makes entries inert if an earlier batch used them and this batch does not: position 0, slot -1, last row -1. The
  // first call does so for all entries up to the limits. So the arrays that callers see are valid in the shapes of the
  // limits.
  void clear_rest() noexcept;

  const kvc_backend_rows& rows() const noexcept { return rows_; }
  // Returns the rows of the batch for attention in a group. In groups to which streaming windows apply
  // (GroupRules::streams), they include these windows. In encoder groups, they have the encoder's lengths and no trees.
  // In groups with compressed rows, lengths count compressed rows, and the position of a query is the index of the last
  // row that it sees. A step that appends encoder tokens attends in no group, so it has no rows here.
  const kvc_backend_rows& rows(int32_t group) const noexcept {
    if (appends_encoder_tokens_) return no_rows_;
    const Group& g = groups_[static_cast<size_t>(group)];
    return g.own_rows.num_rows > 0 ? g.own_rows : g.streams ? stream_rows_ : rows_;
  }
  // [rows]: the streaming window of each row; 0 = the row has none. Null if no row has one.
  const int32_t* stream_windows() const noexcept { return stream_rows_.stream_windows; }
  // [num_tokens]: the position at which q is rotated for sinks: min(p, w - 1) with the streaming window w of the row,
  // or p without a window. Call it after add_streams.
  const int32_t* sink_positions() const noexcept { return sink_positions_.data(); }
  const kvc_backend_tables& tables(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].tables; }
  // The number of tokens that the step appends to a group, or of compressed rows that it closes.
  int32_t num_appended(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].num_appended; }
  // [num_appended]: the slot of each of these tokens or compressed rows, in the order of the batch; -1 for tokens of an
  // inert row.
  const int64_t* slot_mapping(int32_t group) const noexcept {
    return groups_[static_cast<size_t>(group)].slot_mapping.data();
  }
  const int32_t* last_rows() const noexcept { return last_rows_.data(); }

  // The same arrays at the addresses that calls of the backend use: on the device if the step is staged, otherwise on
  // the host.
  const int64_t* backend_slots(int32_t group) const noexcept {
    return groups_[static_cast<size_t>(group)].slot_mapping.for_backend();
  }
  const int32_t* backend_positions() const noexcept { return positions_.for_backend(); }
  const int32_t* backend_sink_positions() const noexcept { return sink_positions_.for_backend(); }
  const int32_t* backend_last_rows() const noexcept { return last_rows_.for_backend(); }

  // Rows and tables with addresses on the device. A visit of for_each_array must have set these addresses before.
  // nodes: the device's mirror of the group's node pool.
  void set_device_nodes(int32_t group, const int32_t* nodes) noexcept {
    groups_[static_cast<size_t>(group)].device_nodes = nodes;
  }
  kvc_backend_rows device_rows(int32_t group) const noexcept;
  kvc_backend_tables device_tables(int32_t group) const noexcept;

  // Calls visit(array, number of its elements in this batch) for every StepArray of the plan. whole: count all elements
  // of the arrays that callers see, also those that clear_rest has cleared.
  template <class Visit>
  void for_each_array(bool whole, Visit visit) {
    const int64_t rows = rows_.num_rows, tokens = rows_.num_tokens;
    const bool streams = stream_rows_.num_rows > 0;
    const auto list = [&](auto& array, int64_t count) { visit(array, count); };
    list(token_begin_, rows + 1);
    list(kv_lengths_, rows);
    list(last_rows_, whole ? last_rows_.size() : rows);
    list(positions_, whole ? positions_.size() : tokens);
    list(key_ends_, rows_.key_ends != nullptr ? tokens : 0);
    list(tree_begin_, rows_.tree_begin != nullptr ? rows : 0);
    list(tree_offset_, rows_.tree_begin != nullptr ? rows : 0);
    list(tree_nodes_, rows_.tree_begin != nullptr ? num_tree_nodes_ : 0);
    list(stream_sinks_, streams ? rows : 0);
    list(stream_windows_, streams ? rows : 0);
    list(sink_positions_, streams ? tokens : 0);
    for (Group& group : groups_) {
      list(group.roots, rows);
      list(group.levels, rows);
      list(group.slot_mapping, whole ? group.slot_mapping.size() : group.num_appended);
      list(group.own_lengths, group.own_rows.num_rows > 0 ? rows : 0);
      list(group.own_positions, group.has_positions() ? tokens : 0);
    }
  }

 private:
  struct Group {
    StepArray<int32_t> roots, levels;  // [rows]
    StepArray<int64_t> slot_mapping;   // [tokens]
    StepArray<int32_t> own_lengths;    // [rows], in an encoder group, or in a group with compressed rows
    StepArray<int32_t> own_positions;  // [tokens], in a group with compressed rows
    kvc_backend_tables tables = {};
    const int32_t* device_nodes = nullptr;
    kvc_backend_rows own_rows = {};  // the rows with own_lengths; empty in other groups
    bool streams = false;            // a row in this group has a streaming window
    int32_t num_appended = 0;        // entries of slot_mapping that belong to this batch

    bool has_positions() const noexcept { return own_rows.num_rows > 0 && own_rows.positions == own_positions.data(); }
  };
  // Returns the largest number of nodes that the trees of a batch have together. Each row with a tree has at least one
  // new token.
  static int64_t most_nodes(const BatchLimits& limits) noexcept {
    return (limits.rows < limits.tokens ? limits.rows : limits.tokens) * limits.tree_nodes;
  }

  static void map_slots(const PageTable& table, const PageList& list, int64_t page_size, const int32_t* tokens,
                        int64_t end, int64_t* mapping) noexcept;
  int32_t map_closed_rows(const PageTable& table, const PageList& list, const GroupRules& rules, int32_t row,
                          int64_t* mapping) const noexcept;
  void build_compressed(const SequenceStore& store, std::span<const int32_t> slots, int32_t group) noexcept;

  StepArray<int32_t> token_begin_;  // [rows + 1]
  StepArray<int32_t> kv_lengths_;   // [rows]
  StepArray<int32_t> last_rows_;    // [rows]
  StepArray<int32_t> positions_;    // [tokens]
  StepArray<int32_t> key_ends_;     // [tokens]
  StepArray<int32_t> tree_begin_;   // [rows]
  StepArray<int32_t> tree_offset_;  // [rows]
  StepArray<kvc_backend_tree_node> tree_nodes_;
  StepArray<int32_t> stream_sinks_;    // [rows]
  StepArray<int32_t> stream_windows_;  // [rows]
  StepArray<int32_t> sink_positions_;  // [tokens]
  int64_t num_tree_nodes_ = 0;
  std::vector<Group> groups_;
  kvc_backend_rows rows_ = {};
  kvc_backend_rows stream_rows_ = {};  // rows_ with streaming windows; empty if no row has one
  kvc_backend_rows no_rows_ = {};
  bool appends_encoder_tokens_ = false;
  bool sinks_apart_;                 // as in BatchLimits
  int64_t used_rows_, used_tokens_;  // entries from these indices on were made inert by clear_rest
};

}  // namespace kvc

// BatchPlan: the index arrays of one step, which all its layers share. They say where the tokens of each row are in q,
// k and v, at which positions and in which slots they are, and through which page lists they are read.
//
// Pure bookkeeping over the sequence store. Thread safety: none while it is built; then any thread may read. Allocates
// in the constructor only.
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
  // Host memory of a plan. It is reserved at once, and touched only as far as batches need it.
  static int64_t bytes_needed(const BatchLimits& limits, int32_t num_groups) noexcept {
    return (5 * limits.rows + 1 + 2 * limits.tokens) * 4 + num_groups * (3 * limits.rows * 4 + limits.tokens * 12) +
           most_nodes(limits) * static_cast<int64_t>(sizeof(kvc_backend_tree_node)) +
           (limits.streaming ? (2 * limits.rows + limits.tokens) * 4 : 0);
  }

  // Throws std::bad_alloc.
  BatchPlan(const BatchLimits& limits, int32_t num_groups);

  // slots[i] is the slot of row i in the store, or -1 for an inert row. Pages are already reserved. encoder_group: as
  // in the step's StepKind.
  void build(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths,
             int32_t encoder_group = -1) noexcept;
  // Completes a batch with trees, whose nodes are in the store: the intervals of nodes, and positions by depth.
  void add_trees(const SequenceStore& store, std::span<const int32_t> slots, std::span<const int32_t> lengths) noexcept;
  // Completes a batch with spans: the last key that each token sees. span_ids: [tokens], as in kvc_batch.
  void add_spans(const int32_t* span_ids) noexcept;
  // Adds the streaming windows of rows that are longer than their windows. Other rows see all keys, as if they did not
  // stream, unless BatchLimits::sinks_apart is set. Call it after the other two.
  void add_streams(const SequenceStore& store, std::span<const int32_t> slots) noexcept;

  // Makes inert what earlier batches used and this one does not: position 0, slot -1, no last row. The first call does
  // so for all arrays that callers see, so that these are valid in the shapes of the limits.
  void clear_rest() noexcept;

  const kvc_backend_rows& rows() const noexcept { return rows_; }
  // The rows as attention in a group sees them. Full groups have the rows' streaming windows. Over encoder sequences
  // there are no trees, and other lengths. Where a row stands for several tokens, lengths count rows, and the position
  // of a query is the last row that it sees. A step of encoder tokens attends in no group, so it has no rows here.
  const kvc_backend_rows& rows(int32_t group) const noexcept {
    if (appends_encoder_tokens_) return no_rows_;
    const Group& g = groups_[static_cast<size_t>(group)];
    return g.own_rows.num_rows > 0 ? g.own_rows : g.streams ? stream_rows_ : rows_;
  }
  // [rows]: the streaming windows, 0 = the row does not stream; null: no row does.
  const int32_t* stream_windows() const noexcept { return stream_rows_.stream_windows; }
  // [num_tokens]: where q is rotated for sinks: min(p, w-1), or the position in rows that do not stream. Call it after
  // add_streams.
  const int32_t* sink_positions() const noexcept { return sink_positions_.data(); }
  const kvc_backend_tables& tables(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].tables; }
  // What the step appends to a group: its tokens, or the rows that it closes, in the order of the batch.
  int32_t num_appended(int32_t group) const noexcept { return groups_[static_cast<size_t>(group)].num_appended; }
  // [num_appended]: slot of each token or row in the group; -1 for an inert row's tokens.
  const int64_t* slot_mapping(int32_t group) const noexcept {
    return groups_[static_cast<size_t>(group)].slot_mapping.data();
  }
  const int32_t* last_rows() const noexcept { return last_rows_.data(); }

  // The same arrays at the addresses that calls of the backend use: on the device if they are staged, else on the host.
  const int64_t* backend_slots(int32_t group) const noexcept {
    return groups_[static_cast<size_t>(group)].slot_mapping.for_backend();
  }
  const int32_t* backend_positions() const noexcept { return positions_.for_backend(); }
  const int32_t* backend_sink_positions() const noexcept { return sink_positions_.for_backend(); }
  const int32_t* backend_last_rows() const noexcept { return last_rows_.for_backend(); }

  // Rows and tables as they are on the device, after for_each_array has given the arrays their addresses there. nodes:
  // the device's mirror of a group's node pool.
  void set_device_nodes(int32_t group, const int32_t* nodes) noexcept {
    groups_[static_cast<size_t>(group)].device_nodes = nodes;
  }
  kvc_backend_rows device_rows(int32_t group) const noexcept;
  kvc_backend_tables device_tables(int32_t group) const noexcept;

  // Calls visit(array, its elements in this batch) for every StepArray of the plan. whole: for the arrays that callers
  // see, it includes what clear_rest cleared.
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
    StepArray<int32_t> own_lengths;    // [rows], of an encoder group, or where a row stands for several tokens
    StepArray<int32_t> own_positions;  // [tokens], where a row stands for several tokens
    kvc_backend_tables tables = {};
    const int32_t* device_nodes = nullptr;
    kvc_backend_rows own_rows = {};  // with own_lengths; without rows in other groups
    bool streams = false;            // a row in this group has a streaming window
    int32_t num_appended = 0;        // entries of slot_mapping that belong to this batch

    bool has_positions() const noexcept { return own_rows.num_rows > 0 && own_rows.positions == own_positions.data(); }
  };
  // Each row with a tree has at least one new token.
  static int64_t most_nodes(const BatchLimits& limits) noexcept {
    return (limits.rows < limits.tokens ? limits.rows : limits.tokens) * limits.tree_nodes;
  }

  void map_slots(const PageTable& table, const PageList& list, int64_t page_size, int32_t row,
                 int64_t* mapping) const noexcept;
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
  kvc_backend_rows stream_rows_ = {};  // if rows stream: rows_ with their windows
  kvc_backend_rows no_rows_ = {};
  bool appends_encoder_tokens_ = false;
  bool sinks_apart_;                 // as in BatchLimits
  int64_t used_rows_, used_tokens_;  // entries from here on are inert since the last clear_rest
};

}  // namespace kvc

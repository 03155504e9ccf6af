// Token trees of sequences: checks and keeps the nodes of steps, and commits one path of nodes.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

Status SequenceStore::uncommitted(int32_t slot, int64_t index) const {
  return Status::error(KVC_ERROR_UNCOMMITTED,
                       "sequence %" PRIu64 " at index %" PRId64 " has an uncommitted tree of %d nodes",
                       records_[slot].id, index, records_[slot].nodes)
      .at(index);
}

Status SequenceStore::check_tree_row(int32_t slot, int64_t row, std::span<const int32_t> parents,
                                     int64_t first_token) const {
  const Record& record = records_[slot];
  const bool tree = parents[0] != KVC_TREE_NONE;
  if (!tree && record.nodes > 0) return uncommitted(slot, row);
  const auto count = static_cast<int64_t>(parents.size());
  if (tree && count > config_.max_tree_nodes - record.nodes) {
    return Status::error(KVC_ERROR_TREE_TOO_LARGE,
                         "row %" PRId64 ": %d + %" PRId64 " tree nodes exceed max_tree_nodes %" PRId64, row,
                         record.nodes, count, config_.max_tree_nodes)
        .at(row)
        .missing(record.nodes + count, config_.max_tree_nodes);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int32_t parent = parents[static_cast<size_t>(i)];
    if (tree ? is_parent(parent, record.nodes + i) : parent == KVC_TREE_NONE) continue;
    if (!tree || parent == KVC_TREE_NONE) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "row %" PRId64 ": tree_parents[%" PRId64
                           "] is %d, but the row's first is %d: its tokens are all nodes, or none",
                           row, first_token + i, parent, parents[0])
          .at(row);
    }
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "row %" PRId64 ": tree_parents[%" PRId64 "] is %d, but parents of node %" PRId64
                         " are -1..%" PRId64,
                         row, first_token + i, parent, record.nodes + i, record.nodes + i - 1)
        .at(row);
  }
  return tree && has_states() ? check_state_parents(slot, row, parents) : Status();
}

Status SequenceStore::check_trees(std::span<const uint64_t> ids, std::span<const int32_t> lengths,
                                  std::span<const int32_t> parents) const {
  size_t token = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto length = static_cast<size_t>(std::max(lengths[i], 0));
    const auto row = static_cast<int64_t>(i);
    if (ids[i] != 0 && length > 0) {
      int32_t slot = -1;
      KVC_TRY(resolve(ids[i], row, &slot));
      if (busy(slot)) return busy_error(slot, row);
      KVC_TRY(check_tree_row(slot, row, parents.subspan(token, length), static_cast<int64_t>(token)));
    }
    token += length;
  }
  return Status();
}

void SequenceStore::add_nodes(std::span<const int32_t> slots, std::span<const int32_t> lengths,
                              std::span<const int32_t> parents) noexcept {
  size_t token = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] >= 0 && parents[token] != KVC_TREE_NONE) {
      Record& record = records_[slots[i]];
      KVC_ASSERT(busy(slots[i]) && record.nodes + lengths[i] <= config_.max_tree_nodes, record.nodes, lengths[i]);
      record.state |= kGrowsTree;
      int16_t* fresh = tree_parents_.data() + slots[i] * config_.max_tree_nodes + record.nodes;
      for (int32_t n = 0; n < lengths[i]; ++n) fresh[n] = static_cast<int16_t>(parents[token + static_cast<size_t>(n)]);
    }
    token += static_cast<size_t>(lengths[i]);
  }
}

void SequenceStore::close_nodes(std::span<const int32_t> slots, std::span<const int32_t> lengths, bool keep) noexcept {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || !grows_tree(slots[i])) continue;
    Record& record = records_[slots[i]];
    KVC_ASSERT(busy(slots[i]), slots[i], record.state);
    record.state &= static_cast<uint8_t>(~kGrowsTree);
    if (!keep) continue;
    record.nodes = static_cast<int16_t>(record.nodes + lengths[i]);
    record.state |= kTree;
  }
}

void SequenceStore::drop_nodes(int32_t slot) noexcept {
  records_[slot].nodes = 0;
  records_[slot].state &= static_cast<uint8_t>(~kTree);
}

Status SequenceStore::plan_commit(std::span<const uint64_t> ids, std::span<const int32_t> leaves,
                                  std::vector<SlotCopy>* copies) {
  start_marking();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int32_t slot = -1;
    KVC_TRY(resolve_first(ids[i], index, &slot));
    if (busy(slot)) return busy_error(slot, index);
    const int32_t nodes = records_[slot].nodes;
    if (nodes == 0) {
      return Status::error(KVC_ERROR_ORDER, "sequence %" PRIu64 " at index %" PRId64 " has no uncommitted tree", ids[i],
                           index)
          .at(index);
    }
    if (leaves[i] < -1 || leaves[i] >= nodes) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "leaf %d at index %" PRId64 " is outside [-1, %d)", leaves[i], index,
                           nodes)
          .at(index);
    }
    if (has_states() && leaves[i] >= 0 && !has_state_of(slot, leaves[i])) {
      return Status::error(KVC_ERROR_EVICTED,
                           "leaf %d at index %" PRId64
                           ": the recurrent state after it is not kept. Kept are those of the last node (%d), and of "
                           "nodes below max_draft_states %" PRId64 " that were stored",
                           leaves[i], index, nodes - 1, config_.max_draft_states)
          .at(index);
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t slot = slot_of(ids[i]);
    const auto kept = static_cast<size_t>(path_to(tree(slot, 0), leaves[i], path_));
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (rules(g).holds_tokens()) plan_moves(slot, g, {path_.data(), kept}, copies);
    }
  }
  return Status();
}

// Plans the copies that move node path[i] to the place of node i. A target is never after its source, and copies run in
// order. So no copy writes a slot that a later copy reads.
void SequenceStore::plan_moves(int32_t slot, int32_t group, std::span<const int32_t> path,
                               std::vector<SlotCopy>* copies) const {
  const int64_t page_size = rules(group).page_size;
  const PageList& pages = list(slot, group);
  const int64_t begin = length(slot);
  const auto slot_at = [&](int64_t index) {
    return int64_t{table(group).at(pages, index / page_size)} * page_size + index % page_size;
  };
  for (size_t i = 0; i < path.size(); ++i) {
    const int64_t target = begin + static_cast<int64_t>(i);
    const int64_t source = begin + path[i];
    KVC_ASSERT(source >= target, source, target);
    if (source == target) continue;
    // A node right after its parent moves by the same distance as the parent. So one copy moves both, unless a page
    // ends between them.
    if (i > 0 && path[i] == path[i - 1] + 1 && source % page_size != 0 && target % page_size != 0) {
      ++copies->back().tokens;
    } else {
      copies->push_back({group, 1, slot_at(source), slot_at(target)});
    }
  }
}

void SequenceStore::finish_commit(std::span<const uint64_t> ids, std::span<const int32_t> leaves) noexcept {
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t slot = slot_of(ids[i]);
    Record& record = records_[slot];
    KVC_ASSERT(!busy(slot) && leaves[i] < record.nodes, leaves[i], record.nodes);
    if (has_states()) close_tree_states(slot, leaves[i]);
    const int64_t first = length(slot);
    const auto kept = static_cast<size_t>(path_to(tree(slot, 0), leaves[i], path_));
    stored_layers_.keep_path(slot, 0, first, {path_.data(), kept});
    record.stored = first + static_cast<int64_t>(kept);
    drop_nodes(slot);
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (!rules(g).holds_tokens()) continue;
      edit_table(g).truncate(edit_list(slot, g), ceil_div(record.stored, rules(g).page_size));
    }
    drop_unseen(slot);
  }
}

}  // namespace kvc

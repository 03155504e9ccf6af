// State groups of sequences: checkpoints, and the states of uncommitted nodes.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

int64_t SequenceStore::find_checkpoint(int32_t slot, int64_t position) const noexcept {
  const std::span<const int64_t> positions = checkpoints(slot);
  const auto found = std::lower_bound(positions.begin(), positions.end(), position);
  return found != positions.end() && *found == position ? found - positions.begin() : -1;
}

void SequenceStore::drop_checkpoint(int32_t slot, int64_t index) noexcept {
  KVC_ASSERT(index >= 0 && index < records_[slot].checkpoints, index, records_[slot].checkpoints);
  for_each_state_group(
      [&](int32_t g, int32_t ordinal) { edit_table(g).unhold_page(checkpoint_pages(slot, index)[ordinal]); });
  const int64_t count = --records_[slot].checkpoints;
  int64_t* positions = checkpoint_positions_.data() + slot * config_.max_checkpoints;
  std::copy(positions + index + 1, positions + count + 1, positions + index);
  std::copy(checkpoint_pages(slot, index + 1), checkpoint_pages(slot, count + 1), checkpoint_pages(slot, index));
}

// Drops the checkpoints after `position`, the last one first, so that the order of the free pages is restored.
void SequenceStore::drop_checkpoints_after(int32_t slot, int64_t position) noexcept {
  while (records_[slot].checkpoints > 0 && checkpoints(slot).back() > position) {
    drop_checkpoint(slot, records_[slot].checkpoints - 1);
  }
}

// Gives sequence `to` the checkpoints of `from` at positions up to `last`. Both sequences then hold the same pages.
void SequenceStore::copy_checkpoints(int32_t from, int32_t to, int64_t last) noexcept {
  for (const int64_t position : checkpoints(from)) {
    if (position > last) break;
    const int64_t index = records_[to].checkpoints++;
    KVC_ASSERT(index < config_.max_checkpoints, index, config_.max_checkpoints);
    checkpoint_positions_[to * config_.max_checkpoints + index] = position;
    for_each_state_group([&](int32_t g, int32_t ordinal) {
      const int32_t page = checkpoint_pages(from, index)[ordinal];
      edit_table(g).hold_page(page);
      checkpoint_pages(to, index)[ordinal] = page;
    });
  }
}

Status SequenceStore::checkpoint(std::span<const uint64_t> ids) {
  start_marking();
  for (size_t i = 0; i < ids.size(); ++i) {
    int32_t slot = -1;
    KVC_TRY(resolve_first(ids[i], static_cast<int64_t>(i), &slot));
    KVC_TRY(check_idle(slot, static_cast<int64_t>(i)));
  }
  for (const uint64_t id : ids) {
    const int32_t slot = slot_of(id);
    const int64_t position = length(slot);
    if (position == 0 || find_checkpoint(slot, position) >= 0) continue;
    if (records_[slot].checkpoints == config_.max_checkpoints) drop_checkpoint(slot, 0);
    const int64_t index = records_[slot].checkpoints++;  // positions ascend, because truncate drops later ones
    checkpoint_positions_[slot * config_.max_checkpoints + index] = position;
    for_each_state_group([&](int32_t g, int32_t ordinal) {
      edit_table(g).hold_page(list(slot, g).tail_page);
      checkpoint_pages(slot, index)[ordinal] = list(slot, g).tail_page;
    });
  }
  return Status();
}

Status SequenceStore::check_states_at(int32_t slot, int64_t position, int64_t index) const {
  if (!has_states() || position == 0 || position == length(slot) || find_checkpoint(slot, position) >= 0) {
    return Status();
  }
  int64_t before = 0, after = 0;
  nearest_position(slot, position, &before, &after);
  return Status::error(KVC_ERROR_EVICTED,
                       "position %" PRId64 " has no checkpoint of its recurrent state (nearest positions: %" PRId64
                       " and %" PRId64 ")",
                       position, before, after)
      .at(index);
}

// Finds the nearest positions at or before `position`, and at or after it, at which the lists can also be cut.
// Candidates are 0, the checkpoints, and the length. *after is -1 if there is none.
void SequenceStore::nearest_checkpoint(int32_t slot, int64_t position, int64_t* before, int64_t* after) const noexcept {
  *before = 0;
  *after = position == 0 ? 0 : -1;
  const auto consider = [&](int64_t kept) {
    if (!lists_work_at(slot, kept)) return;
    if (kept <= position) *before = std::max(*before, kept);
    if (kept >= position && (*after < 0 || kept < *after)) *after = kept;
  };
  for (const int64_t kept : checkpoints(slot)) consider(kept);
  consider(length(slot));
}

// Restores the states of the checkpoint at `position`; position 0 has no states. The lists already have this length.
void SequenceStore::restore_states(int32_t slot, int64_t position) noexcept {
  if (position == 0) return;
  const int64_t checkpoint = find_checkpoint(slot, position);
  KVC_ASSERT(checkpoint >= 0, position, length(slot));
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    const int32_t page = checkpoint_pages(slot, checkpoint)[ordinal];
    edit_table(g).hold_page(page);
    edit_table(g).restore_tail(edit_list(slot, g), page, true);
  });
}

// ---- States of uncommitted nodes. The list has the state of the last node; pages of others are held. ----

// Whether the state after an uncommitted node is kept.
bool SequenceStore::has_state_of(int32_t slot, int32_t node) const noexcept {
  if (node == records_[slot].nodes - 1) return true;
  return keeps_state_of(node) && tree_state(slot, 0, node) >= 0;  // the same in every group
}

// The number of pages that a step needs for the states of its `nodes` new nodes, except the state of the last one.
int64_t SequenceStore::draft_pages(int32_t slot, int64_t nodes) const noexcept {
  const int64_t first = records_[slot].nodes;
  return std::max<int64_t>(std::min(config_.max_draft_states, first + nodes - 1) - first, 0);
}

// The largest number of new nodes for which a state group has enough available pages.
int64_t SequenceStore::max_nodes(int32_t slot, int32_t group) const noexcept {
  const int64_t pages = table(group).available_pages();
  return pages > draft_pages(slot, config_.max_tree_nodes) ? config_.max_tree_nodes : pages;
}

void SequenceStore::take_draft_pages(int32_t slot, int32_t group, int64_t nodes) noexcept {
  const int32_t first = records_[slot].nodes, end = first + static_cast<int32_t>(draft_pages(slot, nodes));
  for (int32_t node = first; node < end; ++node) {
    edit_tree_state(slot, ordinal_of(group), node) = edit_table(group).take_page();
  }
}

// Drops the held states of the nodes from `first` on. If `first` is -1, also drops the state before all nodes. Drops
// the state of the last node first, so that the order of the free pages is restored.
void SequenceStore::drop_tree_states(int32_t slot, int32_t group, int32_t first) noexcept {
  for (auto node = static_cast<int32_t>(config_.max_draft_states); --node >= first;) {
    int32_t& page = edit_tree_state(slot, ordinal_of(group), node);
    if (page >= 0) edit_table(group).unhold_page(page);
    page = -1;
  }
}

// Is called when a step has added nodes. The step holds the page of the state before these nodes. If keeps_state_of is
// true for the node before them, this state is kept; else its page is dropped. Also drops the pages of states that were
// not stored.
void SequenceStore::keep_tree_states(int32_t slot, int32_t added, std::span<const Reservation> row,
                                     uint64_t stored) noexcept {
  const int32_t first = records_[slot].nodes - added;
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    const int32_t before = row[static_cast<size_t>(g)].copied_from;
    if (keeps_state_of(first - 1)) {
      edit_tree_state(slot, ordinal, first - 1) = before;
    } else {
      edit_table(g).unhold_page(before);
    }
    for (int32_t i = 0; i < added - 1 && keeps_state_of(first + i); ++i) {
      int32_t& page = edit_tree_state(slot, ordinal, first + i);
      if ((stored >> i & 1) != 0) continue;
      edit_table(g).unhold_page(page);
      page = -1;
    }
  });
}

// Sets the state of the sequence to the state after node `leaf`; -1 = to the state before all nodes. Drops the other
// states of the tree.
void SequenceStore::close_tree_states(int32_t slot, int32_t leaf) noexcept {
  if (records_[slot].nodes == 0) return;
  KVC_ASSERT(leaf < 0 || has_state_of(slot, leaf), leaf, records_[slot].nodes);
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    if (leaf != records_[slot].nodes - 1) {
      int32_t& page = edit_tree_state(slot, ordinal, leaf);
      KVC_ASSERT(page < table(g).num_pages(), page, table(g).num_pages());
      if (page >= 0) {
        edit_table(g).restore_tail(edit_list(slot, g), page, true);
      } else {
        edit_table(g).truncate(edit_list(slot, g), 0);  // the sequence was empty
      }
      page = -1;
    }
    drop_tree_states(slot, g, -1);
  });
}

// The state before a node is the state after its parent. If the parent is the previous node, the caller has this state.
// Otherwise the caller reads this state from the cache, so the cache must keep it.
Status SequenceStore::check_state_parents(int32_t slot, int64_t row, std::span<const int32_t> parents) const {
  const int32_t nodes = records_[slot].nodes;
  for (size_t i = 0; i < parents.size(); ++i) {
    const int64_t node = nodes + static_cast<int64_t>(i);
    const int32_t parent = parents[i];
    if (parent == node - 1) continue;
    if (config_.max_draft_states > 0 &&
        (parent < 0 || (parent < nodes ? has_state_of(slot, parent) : keeps_state_of(parent)))) {
      continue;
    }
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "row %" PRId64 ": node %" PRId64
                         " has parent %d, whose recurrent state is not kept (max_draft_states %" PRId64
                         "). Such trees are chains: %" PRId64,
                         row, node, parent, config_.max_draft_states, node - 1)
        .at(row);
  }
  return Status();
}

}  // namespace kvc

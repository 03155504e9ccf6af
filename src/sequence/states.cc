// State groups of sequences: checkpoints, and the states before a tree.
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

// Drops the last ones first, so that the order of the free pages is restored.
void SequenceStore::drop_checkpoints_after(int32_t slot, int64_t position) noexcept {
  while (records_[slot].checkpoints > 0 && checkpoints(slot).back() > position) {
    drop_checkpoint(slot, records_[slot].checkpoints - 1);
  }
}

// Shares the checkpoints at positions up to `last`.
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

// Finds the nearest of the positions that also work in the lists: 0, the checkpoints, and the length.
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

// Restores the states of a checkpoint; at position 0 there are none. The lists are already as long as that.
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

// Keeps the references that the step took which added the first nodes.
void SequenceStore::keep_bases(int32_t slot, std::span<const Reservation> row) noexcept {
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    tree_bases_[int64_t{slot} * num_state_groups_ + ordinal] = row[static_cast<size_t>(g)].copied_from;
  });
}

// Drops the states before the uncommitted nodes, or restores them.
void SequenceStore::close_base(int32_t slot, bool restore) noexcept {
  if (records_[slot].nodes == 0) return;
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    int32_t& base = tree_bases_[int64_t{slot} * num_state_groups_ + ordinal];
    KVC_ASSERT(base < table(g).num_pages(), base, table(g).num_pages());
    PageList& pages = edit_list(slot, g);
    if (!restore) {
      if (base >= 0) edit_table(g).unhold_page(base);
    } else if (base >= 0) {
      edit_table(g).restore_tail(pages, base, true);
    } else {
      edit_table(g).truncate(pages, 0);
    }
    base = -1;
  });
}

// Each state follows from the one before, so nodes over states must be a chain.
Status SequenceStore::check_chain(int32_t slot, int64_t row, std::span<const int32_t> parents) const {
  for (size_t i = 0; i < parents.size(); ++i) {
    const int64_t node = records_[slot].nodes + static_cast<int64_t>(i);
    if (parents[i] == node - 1) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "row %" PRId64 ": node %" PRId64
                         " has parent %d, but trees over recurrent state are chains: %" PRId64,
                         row, node, parents[i], node - 1)
        .at(row);
  }
  return Status();
}

}  // namespace kvc

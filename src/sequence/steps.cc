// Forward steps: check, reserve, and then commit or roll back.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

// The number of free token slots in the last page of a list. The list must not be in an open step. The function runs
// for every row of every step, and this formula needs no division.
int64_t SequenceStore::tail_room(int32_t slot, int32_t group) const noexcept {
  return list(slot, group).size * rules(group).page_size - stored_in(slot, group);
}

// Whether `tokens` tokens need no page: they fit in a last page that only this list uses.
bool SequenceStore::fits_tail(int32_t slot, int32_t group, int64_t tokens) const noexcept {
  return tokens <= tail_room(slot, group) && !list(slot, group).tail_shared;
}

bool SequenceStore::tail_needs_copy(int32_t slot, int32_t group) const noexcept {
  const PageList& tail = list(slot, group);
  // tail_shared may be outdated, because the list that shared the page may be gone. So if it is set, a check is needed.
  // For states, it is always set.
  if (!tail.tail_shared || tail_room(slot, group) <= 0) return false;
  return rules(group).holds_state() || !table(group).exclusive(tail, tail.size - 1);
}

int64_t SequenceStore::pages_for_append(int32_t slot, int32_t group, int64_t tokens) const noexcept {
  const int64_t beyond = tokens - tail_room(slot, group);
  return (beyond > 0 ? ceil_div(beyond, rules(group).page_size) : 0) + (tail_needs_copy(slot, group) ? 1 : 0);
}

int64_t SequenceStore::max_append(int32_t slot, int64_t limit) const noexcept {
  if (busy(slot)) return 0;
  int64_t tokens = std::min(limit, config_.max_length - records_[slot].stored);
  if (nodes(slot) > 0) tokens = std::min(tokens, config_.max_tree_nodes - nodes(slot));
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (rules(g).holds_encoder()) continue;
    if (rules(g).holds_state() && nodes(slot) > 0) tokens = std::min(tokens, max_nodes(slot, g));
    const int64_t page_size = rules(g).page_size;
    int64_t pages = table(g).available_pages();
    int64_t room = tail_room(slot, g);
    if (tail_needs_copy(slot, g) && --pages < 0) {
      room = 0;
      pages = 0;
    }
    tokens = std::min(tokens, room + pages * page_size);
  }
  return tokens;
}

void SequenceStore::make_room() noexcept {
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int64_t missing = needed_pages_[static_cast<size_t>(g)] - table(g).free_pages();
    if (missing > 0) evictor_->evict(g, missing);
    KVC_ASSERT(missing <= 0 || table(g).free_pages() >= needed_pages_[static_cast<size_t>(g)], g, missing);
  }
}

// Finds the layers that must hold all tokens of each list: the layers over which the step runs. A step of encoder
// tokens reads only the list of these tokens.
void SequenceStore::find_step_layers(StepKind kind) noexcept {
  for (int32_t list = 0; list < stored_layers_.num_lists(); ++list) {
    const bool needed = kind.encoder_group < 0 || list == list_of(kind.encoder_group);
    step_layers_[static_cast<size_t>(list)] = stored_layers_.layers_of(list, needed ? kind.layers : LayerRange{});
  }
}

bool SequenceStore::layers_complete(int32_t slot) const noexcept {
  const int32_t num_lists = stored_layers_.num_lists();
  if (!stored_layers_.complete(slot, 0, step_layers_[0])) return false;
  for (int32_t list = 1; list < num_lists; ++list) {
    if (!stored_layers_.complete(slot, list, step_layers_[static_cast<size_t>(list)])) return false;
  }
  return true;
}

// Refuses a step over a layer that lacks tokens of the sequence.
Status SequenceStore::check_layers(int32_t slot, int64_t row, StepKind kind) const {
  if (layers_complete(slot)) return Status();
  int32_t list = 0;
  while (stored_layers_.complete(slot, list, step_layers_[static_cast<size_t>(list)])) ++list;
  const int32_t layer = stored_layers_.first_incomplete(slot, list, step_layers_[static_cast<size_t>(list)]);
  const auto group = static_cast<int32_t>(std::find(lists_of_groups_.begin(), lists_of_groups_.end(), list) -
                                          lists_of_groups_.begin());
  const int64_t tokens = list == 0 ? stored(slot) : stored_in(slot, group);
  const int64_t held = stored_layers_.held(slot, layer, tokens);
  return Status::error(KVC_ERROR_ORDER,
                       "row %" PRId64 ": the forward covers layers [%d, %d), and layer %d holds %" PRId64
                       " of the sequence's %" PRId64 " %stokens, since an earlier forward did not cover it",
                       row, kind.layers.begin, kind.layers.end, layer, held, tokens, list == 0 ? "" : "encoder ")
      .at(row)
      .missing(tokens, held);
}

// Makes the checks of check_step for one row. Sets *slot to its slot, or to -1 for an inert row.
Status SequenceStore::check_row(uint64_t id, int32_t length, int64_t row, StepKind kind, int32_t* slot) {
  *slot = -1;
  if (length < (id == 0 ? 0 : 1)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "append length %d of row %" PRId64 " is below %d", length, row,
                         id == 0 ? 0 : 1)
        .at(row);
  }
  if (id == 0) return Status();
  KVC_TRY(resolve_first(id, row, slot));
  Record& record = records_[*slot];
  record.takes_pages = false;
  if (busy(*slot) || (!kind.with_trees && (record.state & kTree) != 0)) return not_idle(*slot, row);
  KVC_TRY(check_layers(*slot, row, kind));
  const int64_t stored = kind.encoder_group < 0 ? record.stored : stored_in(*slot, kind.encoder_group);
  if (length <= config_.max_length - stored) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE,
                       "row %" PRId64 ": length %" PRId64 " + %d exceeds the limit of %" PRId64 " tokens", row, stored,
                       length, config_.max_length)
      .at(row);
}

Status SequenceStore::check_step(std::span<const uint64_t> ids, std::span<const int32_t> lengths,
                                 std::span<int32_t> slots, StepKind kind, std::span<const int32_t> parents) {
  const uint8_t refused = kBusy | kSuspended | (kind.with_trees ? 0 : kTree);
  const bool tokens = kind.encoder_group < 0, one_list = stored_layers_.num_lists() == 1;
  start_marking();
  find_step_layers(kind);
  const StoredLayers::LayerSet layers = step_layers_[0];
  for (size_t i = 0; i < ids.size(); ++i) {
    // Accepts the usual row here, without making a Status. Its sequence exists, is idle, occurs for the first time, and
    // has room, and all layers of the step hold its tokens. check_row checks all other rows.
    const int32_t slot = ids_.slot_of(ids[i]);
    if (slot >= 0 && slot < records_.size()) {
      Record& record = records_[slot];
      if (tokens && record.id == ids[i] && record.mark != mark_ && (record.state & refused) == 0 && lengths[i] > 0 &&
          lengths[i] <= config_.max_length - record.stored && stored_layers_.complete(slot, 0, layers) &&
          (one_list || layers_complete(slot))) {
        record.mark = mark_;
        record.takes_pages = false;
        slots[i] = slot;
        continue;
      }
    }
    KVC_TRY(check_row(ids[i], lengths[i], static_cast<int64_t>(i), kind, &slots[i]));
  }
  Shortage shortage;
  for (int32_t g = 0; g < num_groups(); ++g) {
    needed_pages_[static_cast<size_t>(g)] = 0;
    if (!grows(g, kind)) continue;
    int64_t required = 0;
    const int64_t available = table(g).available_pages();
    const bool with_drafts = keeps_drafts(g, parents);
    int64_t first_missing = -1;
    size_t token = 0;
    for (size_t i = 0; i < ids.size(); token += static_cast<size_t>(lengths[i++])) {
      if (slots[i] < 0 || fits_tail(slots[i], g, lengths[i])) continue;
      records_[slots[i]].takes_pages = true;
      required += pages_for_append(slots[i], g, lengths[i]);
      if (with_drafts && parents[token] != KVC_TREE_NONE) required += draft_pages(slots[i], lengths[i]);
      if (required > available && first_missing < 0) first_missing = static_cast<int64_t>(i);
    }
    needed_pages_[static_cast<size_t>(g)] = required;
    shortage.add(g, required, first_missing);
  }
  return check_rows(shortage);
}

int64_t SequenceStore::most_copies(int64_t rows) const noexcept {
  int64_t copies = rows * num_groups();
  if (!config_.cleared) return copies;
  for (const int64_t pages : needed_pages_) copies += pages;
  return copies;
}

// If config_.cleared is set, appends a clear for the slots of a page after its first `filled` slots. The first slots
// get their contents in another way.
void SequenceStore::clear_rest(int32_t group, int32_t page, int64_t filled, std::vector<SlotCopy>* copies) const {
  const int64_t page_size = rules(group).page_size;
  if (!config_.cleared || filled == page_size) return;
  copies->push_back({group, static_cast<int32_t>(page_size - filled), -1, page * page_size + filled});
}

void SequenceStore::reserve(std::span<const int32_t> slots, std::span<const int32_t> lengths,
                            std::span<Reservation> reservations, std::vector<SlotCopy>* copies, StepKind kind,
                            std::span<const int32_t> parents) noexcept {
  make_room();
  const auto groups = static_cast<size_t>(num_groups());
  Record* const records = records_.data();
  const PageList* const lists = lists_.data();
  size_t token = 0;
  Reservation* row = reservations.data();
  for (size_t i = 0; i < slots.size(); token += static_cast<size_t>(lengths[i++]), row += groups) {
    const int32_t slot = slots[i];
    if (slot < 0) {
      std::fill_n(row, groups, Reservation{});
      continue;
    }
    Record& record = records[slot];
    KVC_ASSERT(record.used && !record.removed() && !busy(slot), slot, record.state);
    const PageList* const of_slot = lists + static_cast<size_t>(slot) * groups;
    for (size_t g = 0; g < groups; ++g) row[g] = {of_slot[g].size, -1};
    if (record.takes_pages) {
      const bool draft = !parents.empty() && parents[token] != KVC_TREE_NONE;
      take_pages(slot, lengths[i], draft, {row, groups}, copies, kind, parents);
    }
    set_busy(record, BusyWith::kForward);
  }
}

// Takes the pages of one row in all groups. draft: the row's tokens are nodes of a tree.
void SequenceStore::take_pages(int32_t slot, int32_t tokens, bool draft, std::span<Reservation> row,
                               std::vector<SlotCopy>* copies, StepKind kind,
                               std::span<const int32_t> parents) noexcept {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!grows(g, kind) || fits_tail(slot, g, tokens)) continue;
    PageList& tail = edit_list(slot, g);
    if (keeps_drafts(g, parents) && draft) take_draft_pages(slot, g, tokens);
    const int64_t page_size = rules(g).page_size;
    const bool states = rules(g).holds_state();
    int64_t room = tail_room(slot, g);
    if (tail_needs_copy(slot, g)) {
      const int32_t source = tail.tail_page;
      row[static_cast<size_t>(g)].copied_from = source;
      edit_table(g).hold_page(source);
      const int32_t target = edit_table(g).replace_tail(tail);
      if (!states) {
        copies->push_back({g, static_cast<int32_t>(page_size - room), source * page_size, target * page_size});
        clear_rest(g, target, page_size - room, copies);
      }
    }
    for (; room < tokens; room += page_size) {
      const int32_t page = edit_table(g).append(tail);
      if (!states) clear_rest(g, page, 0, copies);
    }
    if (states) tail.tail_shared = true;  // so the next step takes another page
    KVC_ASSERT(stored_in(slot, g) + tokens <= tail.size * page_size, stored_in(slot, g), tail.size);
  }
}

// Frees pages that no later query of the sequence can see, in every group.
void SequenceStore::drop_unseen(int32_t slot) noexcept {
  const StreamWindow stream = records_[slot].stream;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!rules(g).windowed() && !stream.on()) continue;
    const GroupRules rules = this->rules(g).with(stream);
    PageList& pages = edit_list(slot, g);
    if (rules.droppable_tokens(length(slot)) < (pages.first + 1) * rules.page_size) continue;
    edit_table(g).drop_front(pages, rules.droppable_pages(length(slot)), rules.sink_pages());
  }
}

void SequenceStore::commit(std::span<const int32_t> slots, std::span<const int32_t> lengths,
                           std::span<const Reservation> reservations, StepKind kind, uint64_t stored_states) noexcept {
  const int32_t list = kind.encoder_group < 0 ? 0 : list_of(kind.encoder_group);
  const StoredLayers::LayerSet layers = stored_layers_.layers_of(list, kind.layers);
  const auto groups = static_cast<size_t>(num_groups());
  const bool windows = has_windows_, states = has_states();
  Record* const records = records_.data();
  const Reservation* row = reservations.data();
  for (size_t i = 0; i < slots.size(); ++i, row += groups) {
    const int32_t slot = slots[i];
    if (slot < 0) continue;
    Record& record = records[slot];
    KVC_ASSERT(record.used && busy(slot) && !grows_tree(slot), slot, record.state);
    stored_layers_.append(slot, list, layers, list == 0 ? record.stored : stored_in(slot, kind.encoder_group));
    if (kind.encoder_group < 0) {
      record.stored += lengths[i];
    } else {
      encoder_tokens_[int64_t{slot} * num_groups() + kind.encoder_group] += lengths[i];
    }
    record.state &= static_cast<uint8_t>(~kBusy);
    const bool has_tree_states = states && record.nodes > 0;  // the step has added nodes
    if (has_tree_states) keep_tree_states(slot, lengths[i], {row, groups}, stored_states);
    for (size_t g = 0; g < groups; ++g) {
      const auto group = static_cast<int32_t>(g);
      const int32_t copied = row[g].copied_from;
      if (copied >= 0 && !(has_tree_states && rules(group).holds_state())) edit_table(group).unhold_page(copied);
    }
    if (windows || record.stream.on()) drop_unseen(slot);
    if (record.removed()) free_slot(slot);
  }
}

void SequenceStore::rollback(std::span<const int32_t> slots, std::span<const Reservation> reservations) noexcept {
  // Rolls back the last row first, so that the order of the free pages is restored.
  for (size_t i = slots.size(); i-- > 0;) {
    const int32_t slot = slots[i];
    if (slot < 0) continue;
    Record& record = records_[slot];
    KVC_ASSERT(record.used && busy(slot) && !grows_tree(slot), slot, record.state);
    record.state &= static_cast<uint8_t>(~kBusy);
    for (int32_t g = 0; g < num_groups(); ++g) {
      const Reservation& reservation = reservations[i * static_cast<size_t>(num_groups()) + static_cast<size_t>(g)];
      PageList& tail = edit_list(slot, g);
      // truncate would also reset tail_shared, which must stay set for states. So it runs only if the step added
      // entries.
      if (tail.size > reservation.old_size) edit_table(g).truncate(tail, reservation.old_size);
      if (reservation.copied_from >= 0) edit_table(g).restore_tail(tail, reservation.copied_from, true);
      if (rules(g).holds_state()) drop_tree_states(slot, g, record.nodes);
      KVC_ASSERT(tail.size == reservation.old_size, tail.size, reservation.old_size);
    }
    if (record.removed()) free_slot(slot);
  }
}

}  // namespace kvc

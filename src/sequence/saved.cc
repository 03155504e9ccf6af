// Sequences that are saved to a file, and loaded from a file.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {
namespace {

Status corrupt(const char* what, int32_t group) {
  return Status::error(KVC_ERROR_CORRUPT, "group %d of the saved sequence has %s", group, what).in_group(group);
}

// The pages that contain freed tokens. A load drops the other tokens of these pages too.
Hole hole_in_pages(const SavedSequence::List& list, int64_t page_size) noexcept {
  if (list.hole_begin == list.hole_end) return {};
  return {list.hole_begin / page_size, std::min(ceil_div(list.hole_end, page_size), ceil_div(list.tokens, page_size))};
}

}  // namespace

Status SequenceStore::begin_save(uint64_t id, SavedSequence* out, int32_t* slot) {
  KVC_TRY(resolve(id, 0, slot));
  KVC_TRY(check_idle(*slot, 0));
  KVC_TRY(check_held(*slot, length(*slot), true));
  Record& record = records_[*slot];
  out->length = length(*slot);
  out->stream = record.stream;
  out->streamed = record.streamed;
  out->lists.assign(static_cast<size_t>(num_groups()), {});
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (rules(g).holds_state()) continue;
    SavedSequence::List& saved = out->lists[static_cast<size_t>(g)];
    saved.tokens = length_in(*slot, g);
    const PageList& pages = list(*slot, g);
    if (!pages.has_hole()) continue;
    saved.hole_begin = pages.kept * rules(g).page_size;
    saved.hole_end = std::min(pages.first * rules(g).page_size, saved.tokens);
  }
  out->checkpoints.clear();
  if (has_states()) out->checkpoints.assign(checkpoints(*slot).begin(), checkpoints(*slot).end());
  set_busy(*slot, BusyWith::kSave);
  return Status();
}

void SequenceStore::end_save(int32_t slot) noexcept {
  KVC_ASSERT(records_[slot].used && busy(slot), slot, records_[slot].state);
  records_[slot].state &= static_cast<uint8_t>(~kBusy);
  if (records_[slot].removed()) free_slot(slot);
}

int64_t SequenceStore::dropped_checkpoints(const SavedSequence& saved) const noexcept {
  return std::max<int64_t>(0, static_cast<int64_t>(saved.checkpoints.size()) - config_.max_checkpoints);
}

int32_t SequenceStore::checkpoint_page(int32_t slot, int32_t group, int64_t index) const noexcept {
  int32_t page = -1;
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    if (g == group) page = checkpoint_pages(slot, index)[ordinal];
  });
  return page;
}

// Checks that a list of the group can have the form of the saved list. Sets needed_pages_ to the pages that it takes.
Status SequenceStore::check_saved_list(const SavedSequence& saved, int32_t group) {
  const SavedSequence::List& list = saved.lists[static_cast<size_t>(group)];
  const GroupRules rules = this->rules(group).with(saved.stream);
  int64_t& needed = needed_pages_[static_cast<size_t>(group)];
  const bool cut = list.hole_begin != list.hole_end;
  if (rules.holds_state()) {
    if (list.tokens != 0 || cut) return corrupt("tokens, and it holds states", group);
    needed = saved.num_states() - dropped_checkpoints(saved);
    return Status();
  }
  if (list.tokens > config_.max_length || (!rules.holds_encoder() && list.tokens != saved.length)) {
    return corrupt("another length than the sequence", group);
  }
  const GroupRules& own = this->rules(group);
  const bool may_be_cut = own.holds_tokens() && (own.windowed() ? list.hole_begin == 0 : saved.stream.on());
  if (cut && !may_be_cut) return corrupt("freed tokens, which its visibility does not allow", group);
  const Hole hole = hole_in_pages(list, rules.page_size);
  if (!rules.works_at(saved.length, hole)) {
    return Status::error(KVC_ERROR_LAYOUT,
                         "tokens [%" PRId64 ", %" PRId64
                         ") of group %d are freed in the file, and with pages of %" PRId64
                         " tokens a sequence of %" PRId64 " would need some of those beside them",
                         list.hole_begin, list.hole_end, group, rules.page_size, saved.length)
        .in_group(group);
  }
  needed = ceil_div(list.tokens, rules.page_size) - (hole.end - hole.begin);
  return Status();
}

Status SequenceStore::check_load(const SavedSequence& saved) {
  if (static_cast<int64_t>(saved.lists.size()) != num_groups()) {
    return Status::error(KVC_ERROR_CORRUPT, "the saved sequence has %zu groups, and its layout has %d",
                         saved.lists.size(), num_groups());
  }
  if (saved.stream.on() && !config_.streaming) {
    return Status::error(
        KVC_ERROR_UNSUPPORTED,
        "the saved sequence has a streaming window, and the cache was created without KVC_CACHE_STREAMING");
  }
  if (!saved.checkpoints.empty() && !has_states()) return corrupt("checkpoints, and no group holds states", 0);
  KVC_TRY(check_slots(1));
  for (int32_t g = 0; g < num_groups(); ++g) KVC_TRY(check_saved_list(saved, g));
  return check_needed_pages();
}

Status SequenceStore::begin_load(const SavedSequence& saved, int32_t* out, std::vector<SlotCopy>* clears) {
  KVC_TRY(check_load(saved));
  clears->reserve(clears->size() + static_cast<size_t>(num_groups()));  // nothing after this can fail
  make_room();
  const int32_t slot = *out = take_slot();
  set_busy(slot, BusyWith::kFill);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const SavedSequence::List& list = saved.lists[static_cast<size_t>(g)];  // 0 tokens in a group of states
    const int64_t page_size = rules(g).page_size, count = ceil_div(list.tokens, page_size);
    const Hole hole = hole_in_pages(list, page_size);
    PageList& pages = edit_list(slot, g);
    while (pages.size < (hole.empty() ? count : hole.begin)) edit_table(g).append(pages);
    if (!hole.empty()) edit_table(g).skip(pages, hole.end - hole.begin);
    while (pages.size < count) edit_table(g).append(pages);
    if (list.tokens % page_size != 0 && pages.tail_page >= 0) {
      clear_rest(g, pages.tail_page, list.tokens % page_size, clears);
    }
  }
  take_state_pages(saved, slot);
  return Status();
}

// For each group of states, takes a page for each checkpoint that is kept, and a page for the current state.
void SequenceStore::take_state_pages(const SavedSequence& saved, int32_t slot) noexcept {
  if (!has_states() || saved.length == 0) return;
  const auto kept = std::span(saved.checkpoints).subspan(static_cast<size_t>(dropped_checkpoints(saved)));
  records_[slot].checkpoints = static_cast<int32_t>(kept.size());
  std::copy(kept.begin(), kept.end(), checkpoint_positions_.data() + slot * config_.max_checkpoints);
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    PageTable& table = edit_table(g);
    PageList& pages = edit_list(slot, g);
    for (size_t i = 0; i < kept.size() && kept[i] < saved.length; ++i) {
      const int32_t page = checkpoint_pages(slot, static_cast<int64_t>(i))[ordinal] = table.append(pages);
      table.hold_page(page);
      table.release(pages);
    }
    const int32_t page = table.append(pages);
    pages.tail_shared = true;  // no step writes this page again
    if (kept.empty() || kept.back() != saved.length) return;
    checkpoint_pages(slot, static_cast<int64_t>(kept.size()) - 1)[ordinal] = page;
    table.hold_page(page);
  });
}

Status SequenceStore::finish_load(const SavedSequence& saved, int32_t slot, uint64_t* id) {
  Record& record = records_[slot];
  KVC_ASSERT(record.used && busy(slot), slot, record.state);
  record.state &= static_cast<uint8_t>(~kBusy);
  if (record.removed()) {
    free_slot(slot);
    return Status::error(KVC_ERROR_STALE_ID, "the sequence was removed while it was loaded");
  }
  record.stored = saved.length;
  record.stream = saved.stream;
  record.streamed = saved.streamed;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!rules(g).holds_encoder()) continue;
    encoder_tokens_[int64_t{slot} * num_groups() + g] = saved.lists[static_cast<size_t>(g)].tokens;
  }
  *id = record.id;
  return Status();
}

void SequenceStore::abandon_load(int32_t slot) noexcept {
  KVC_ASSERT(records_[slot].used && busy(slot), slot, records_[slot].state);
  records_[slot].state &= static_cast<uint8_t>(~kBusy);
  // Releases states in the reverse order of take_state_pages, so that the order of the free pages is restored.
  for_each_state_group([&](int32_t g, int32_t) { edit_table(g).release(edit_list(slot, g)); });
  free_slot(slot);
}

}  // namespace kvc

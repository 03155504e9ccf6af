// Sequences whose contents are loaded from tiers. They have the pages of a prefix, and then fresh pages whose contents
// come later.
#include <algorithm>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

// The first list entry that the sequence needs. A query at position `tokens` must find all keys that it sees. Entries
// of the rollback margin are included if the source has them.
int64_t SequenceStore::first_filled_entry(const PrefixSource& source, int32_t group, int64_t found,
                                          int64_t tokens) const noexcept {
  const GroupRules& rules = this->rules(group);
  const int64_t held = found / rules.page_size;
  int64_t first = rules.first_visible(tokens) / rules.page_size;
  while (first <= held && first > rules.droppable_pages(tokens) && source.at(group, first - 1) >= 0) --first;
  return first;
}

Status SequenceStore::check_fill(const PrefixSource& source, int64_t found, int64_t tokens) {
  KVC_ASSERT(found < tokens, found, tokens);
  KVC_TRY(check_slots(1));  // the load has a sequence while it runs
  for (int32_t g = 0; g < num_groups(); ++g) {
    int64_t& required = needed_pages_[static_cast<size_t>(g)];
    required = rules(g).holds_state() ? 1 : 0;
    int64_t available = table(g).available_pages();
    if (rules(g).holds_tokens()) {
      const int64_t page_size = rules(g).page_size, held = found / page_size, count = tokens / page_size;
      const int64_t first = first_filled_entry(source, g, found, tokens);
      KVC_TRY(check_nodes(g, first, count));
      required = count - std::max(first, held);
      // The sequence will share the pages of the prefix, so idle pages among them are not available.
      for (int64_t i = first; i < held; ++i) available -= is_idle(g, source.at(g, i));
    }
    KVC_TRY(check_pages(g, required, std::max<int64_t>(available, 0)));
  }
  return Status();
}

Status SequenceStore::begin_fill(const PrefixSource& source, int64_t found, int64_t tokens, uint64_t* id) {
  KVC_TRY(check_fill(source, found, tokens));
  const int32_t slot = take_slot();
  Record& record = records_[slot];
  record.stored = tokens;
  set_busy(slot, BusyWith::kFill);
  *id = record.id;
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!rules(g).holds_tokens()) continue;
    PageList& target = edit_list(slot, g);
    const int64_t held = found / rules(g).page_size;
    const int64_t first = first_filled_entry(source, g, found, tokens);
    if (first > 0) edit_table(g).skip(target, first);
    for (int64_t i = first; i < held; ++i) {
      const int32_t page = source.at(g, i);
      edit_table(g).append_shared(target, {&page, 1});
    }
  }
  make_room();  // the sequence refers to the pages of the prefix, so they are not evicted
  for (int32_t g = 0; g < num_groups(); ++g) {
    PageList& target = edit_list(slot, g);
    for (int64_t i = 0; i < needed_pages_[static_cast<size_t>(g)]; ++i) edit_table(g).append(target);
  }
  return Status();
}

Status SequenceStore::share_filled(uint64_t filled, int64_t tokens, uint64_t* id) {
  const int32_t parent = slot_of(filled);
  KVC_ASSERT(records_[parent].id == filled && busy(parent) && tokens <= length(parent), filled, tokens);
  KVC_TRY(check_works_at(parent, tokens, 0));
  KVC_TRY(check_slots(1));
  const int32_t slot = take_slot();
  share_prefix(parent, slot, tokens, nullptr);  // whole pages, so nothing is copied
  *id = records_[slot].id;
  return Status();
}

void SequenceStore::finish_fill(uint64_t id) noexcept {
  Record& record = records_[slot_of(id)];
  KVC_ASSERT(record.id == id && (record.state & kBusy) != 0, id, record.state);
  record.state &= static_cast<uint8_t>(~kBusy);
}

}  // namespace kvc

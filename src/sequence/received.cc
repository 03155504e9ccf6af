// Sequences that another cache sends. They have the pages of a prefix, and then fresh pages whose contents come
// later.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

Status SequenceStore::check_prefix(uint64_t id, int64_t tokens, int32_t* slot) const {
  KVC_TRY(resolve(id, 0, slot));
  KVC_TRY(check_idle(*slot, 0));
  if (has_states() || records_[*slot].streamed) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the prefix has %s",
                         has_states() ? "recurrent states" : "a streaming window");
  }
  if (length(*slot) >= tokens) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "the prefix has %" PRId64 " tokens, and num_tokens is %" PRId64,
                         length(*slot), tokens);
  }
  return check_held(*slot, length(*slot), true);
}

int64_t SequenceStore::first_received(int32_t group, int32_t prefix, int64_t tokens) const noexcept {
  const GroupRules& rules = this->rules(group);
  const int64_t found = prefix < 0 ? 0 : length(prefix);
  return std::max(found, rules.first_visible(tokens)) / rules.page_size * rules.page_size;
}

Status SequenceStore::check_receive(int32_t prefix, int64_t tokens) {
  if (tokens < 1 || tokens > config_.max_length) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "num_tokens %" PRId64 " is outside 1..%" PRId64, tokens,
                         config_.max_length);
  }
  KVC_TRY(check_slots(1));
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int64_t page_size = rules(g).page_size, first = first_received(g, prefix, tokens) / page_size;
    needed_pages_[static_cast<size_t>(g)] = ceil_div(tokens, page_size) - first;
  }
  return check_needed_pages();
}

Status SequenceStore::begin_receive(int32_t prefix, int64_t tokens, uint64_t* id, std::vector<SlotCopy>* clears) {
  KVC_TRY(check_receive(prefix, tokens));
  clears->reserve(clears->size() + static_cast<size_t>(num_groups()));  // nothing after this can fail
  make_room();
  const int32_t slot = take_slot();
  Record& record = records_[slot];
  record.stored = tokens;
  set_busy(slot, BusyWith::kFill);
  *id = record.id;
  for (int32_t g = 0; g < num_groups(); ++g) {
    PageList& pages = edit_list(slot, g);
    const int64_t page_size = rules(g).page_size, count = ceil_div(tokens, page_size);
    const int64_t first = rules(g).first_visible(tokens) / page_size;
    const int64_t held = first_received(g, prefix, tokens) / page_size;
    if (held > first) {
      pages = edit_table(g).share(list(prefix, g), held);
      if (first > 0) edit_table(g).drop_front(pages, first);
    } else if (first > 0) {
      edit_table(g).skip(pages, first);
    }
    while (pages.size < count) edit_table(g).append(pages);
    if (rules(g).holds_state()) {
      pages.tail_shared = true;  // no step writes this page again
    } else if (tokens % page_size != 0 && pages.tail_page >= 0) {
      clear_rest(g, pages.tail_page, tokens % page_size, clears);
    }
  }
  return Status();
}

}  // namespace kvc

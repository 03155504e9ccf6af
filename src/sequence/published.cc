// The methods for the prefix index: they find the pages of a sequence that is published, and make new sequences from
// pages of the index.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

Status SequenceStore::check_publish(uint64_t id, int64_t tokens, int32_t* slot) const {
  KVC_TRY(resolve(id, 0, slot));
  KVC_TRY(check_idle(*slot, 0));
  if (tokens > length(*slot)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "%" PRId64 " tokens exceed the sequence's length %" PRId64, tokens,
                         length(*slot));
  }
  if (records_[*slot].streamed) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "sequence %" PRIu64 " has or had a streaming window", id);
  }
  return check_held(*slot, tokens, false);
}

Status SequenceStore::check_held(int32_t slot, int64_t tokens, bool encoder_too) const {
  for (size_t layer = 0; layer < config_.layer_groups.size(); ++layer) {
    const int32_t group = config_.layer_groups[layer];
    if (group < 0) continue;
    const bool encoder = rules(group).holds_encoder();
    if (encoder && !encoder_too) continue;
    const int64_t wanted = encoder ? stored_in(slot, group) : tokens;
    const int64_t held = this->held(slot, group, static_cast<int32_t>(layer));
    if (held >= wanted) continue;
    return Status::error(KVC_ERROR_ORDER,
                         "layer %zu holds %" PRId64 " of the %" PRId64 " tokens, since a forward did not cover it",
                         layer, held, wanted)
        .at(static_cast<int64_t>(layer))
        .missing(wanted, held);
  }
  return Status();
}

int32_t SequenceStore::page_at(int32_t slot, int32_t group, int64_t index, int64_t tokens) const noexcept {
  const PageList& pages = list(slot, group);
  if (!rules(group).holds_state()) return index < pages.size ? table(group).at(pages, index) : -1;
  if (tokens == length(slot)) return pages.tail_page;
  const int64_t checkpoint = find_checkpoint(slot, tokens);
  if (checkpoint < 0) return -1;
  int32_t page = -1;
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    if (g == group) page = checkpoint_pages(slot, checkpoint)[ordinal];
  });
  return page;
}

void SequenceStore::read_pages(int32_t slot, int32_t group, std::span<int32_t> pages) const noexcept {
  const PageList& own = list(slot, group);
  std::fill(pages.begin(), pages.end(), -1);
  const auto count = std::min<int64_t>(own.size, static_cast<int64_t>(pages.size()));
  table(group).for_each(own, 0, count, [&](int64_t index, int32_t page) { pages[static_cast<size_t>(index)] = page; });
}

void SequenceStore::replace_page(int32_t slot, int32_t group, int64_t index, int32_t page) noexcept {
  const PageTable& pages = table(group);
  if (pages.nodes().free() - list(slot, group).levels < reserved_nodes_[static_cast<size_t>(group)]) return;
  edit_table(group).replace(edit_list(slot, group), index, page);
}

void SequenceStore::protect_tail(int32_t slot) noexcept {
  for (int32_t g = 0; g < num_groups(); ++g) {
    PageList& pages = edit_list(slot, g);
    if (pages.tail_page >= 0 && is_indexed(g, pages.tail_page)) pages.tail_shared = true;
  }
}

int64_t SequenceStore::first_entry(const PrefixSource& source, int32_t group, int64_t tokens) const noexcept {
  const GroupRules& rules = this->rules(group);
  int64_t first = rules.first_visible(tokens) / rules.page_size;
  // Takes as much of the rollback margin as the source has.
  while (first > rules.droppable_pages(tokens) && source.at(group, first - 1) >= 0) --first;
  return first;
}

// Returns the pages that a sequence of `tokens` tokens takes from a source: those of the list entries from first_entry
// on.
std::span<const int32_t> SequenceStore::read_source(const PrefixSource& source, int32_t group,
                                                    int64_t tokens) noexcept {
  const int64_t first = first_entry(source, group, tokens), count = ceil_div(tokens, rules(group).page_size);
  const auto pages = std::span(source_pages_).first(static_cast<size_t>(count - first));
  source.read(group, first, pages);
  return pages;
}

// Finds a sequence whose list begins with these pages, so that a new list can share its nodes. Returns its slot, or
// -1.
int32_t SequenceStore::find_donor(int32_t group, std::span<const int32_t> pages) const noexcept {
  if (rules(group).windowed()) return -1;
  const auto count = static_cast<int64_t>(pages.size());
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    const PageList& own = list(slot, group);
    if (!records_[slot].used || own.size < count || own.has_hole() || table(group).at(own, count - 1) != pages.back()) {
      continue;
    }
    bool same = true;
    table(group).for_each(
        own, 0, count, [&](int64_t index, int32_t page) { same = same && pages[static_cast<size_t>(index)] == page; });
    if (same) return slot;
  }
  return -1;
}

// Checks attach, and fills donors_. A partial last page needs a page for its copy. The new sequence will share the
// pages of the prefix, so idle pages among them are not available for the copy.
Status SequenceStore::check_attach(const PrefixSource& source, int64_t tokens) {
  KVC_TRY(check_slots(1));
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!rules(g).holds_tokens()) continue;
    source_pages_.resize(std::max(source_pages_.size(), static_cast<size_t>(ceil_div(tokens, rules(g).page_size))));
  }
  for (int32_t g = 0; g < num_groups(); ++g) {
    needed_pages_[static_cast<size_t>(g)] = 0;
    donors_[static_cast<size_t>(g)] = -1;
    if (!rules(g).holds_tokens() || tokens == 0) continue;
    const int64_t count = ceil_div(tokens, rules(g).page_size);
    const std::span<const int32_t> pages = read_source(source, g, tokens);
    const int64_t first = count - static_cast<int64_t>(pages.size());
    donors_[static_cast<size_t>(g)] = find_donor(g, pages);
    if (donors_[static_cast<size_t>(g)] < 0) KVC_TRY(check_nodes(g, first, count));
    if (tokens % rules(g).page_size == 0) continue;
    needed_pages_[static_cast<size_t>(g)] = 1;
    int64_t available = table(g).available_pages();
    for (size_t i = 0; available > 0 && i < pages.size(); ++i) available -= is_idle(g, pages[i]);
    KVC_TRY(check_pages(g, 1, available));
  }
  return Status();
}

Status SequenceStore::attach(const PrefixSource& source, int64_t tokens, uint64_t* id, std::vector<SlotCopy>* copies) {
  KVC_TRY(check_attach(source, tokens));
  copies->reserve(copies->size() + static_cast<size_t>(2 * num_groups()));
  const int32_t slot = take_slot();
  *id = records_[slot].id;
  records_[slot].stored = tokens;
  if (tokens == 0) return Status();
  for (int32_t g = 0; g < num_groups(); ++g) {
    PageList& target = edit_list(slot, g);
    const int32_t donor = donors_[static_cast<size_t>(g)];
    if (const int32_t state = rules(g).holds_state() ? source.at(g, 0) : -1; state >= 0) {
      edit_table(g).append_shared(target, {&state, 1});
    }
    if (!rules(g).holds_tokens()) continue;
    const int64_t count = ceil_div(tokens, rules(g).page_size);
    if (donor >= 0) {
      target = edit_table(g).share(list(donor, g), count);
      continue;
    }
    const std::span<const int32_t> pages = read_source(source, g, tokens);
    if (const int64_t first = count - static_cast<int64_t>(pages.size()); first > 0) {
      edit_table(g).skip(target, first);
    }
    edit_table(g).append_shared(target, pages);
  }
  make_room();  // the new sequence refers to the prefix's pages, so they are not evicted
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int64_t page_size = rules(g).page_size;
    if (!rules(g).holds_tokens() || tokens % page_size == 0) continue;
    PageList& target = edit_list(slot, g);
    const int32_t partial = target.tail_page;
    const int32_t page = edit_table(g).replace_tail(target);
    copies->push_back({g, static_cast<int32_t>(tokens % page_size), partial * page_size, page * page_size});
    clear_rest(g, page, tokens % page_size, copies);
  }
  return Status();
}

}  // namespace kvc

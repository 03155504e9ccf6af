// Suspends and resumes sequences. A suspended sequence gives up the pages to which no other owner except the prefix
// index refers. When the sequence is resumed, fresh pages take their places.
#include <algorithm>
#include <cinttypes>

#include "base/assert.h"
#include "sequence/sequence_store.h"

namespace kvc {

// Whether the place at `index` is the first one with its page. A page can have two places, because the current state of
// a sequence may be in the page of a checkpoint.
bool SequenceStore::is_first(const std::vector<Place>& places, size_t index) noexcept {
  return std::none_of(places.begin(), places.begin() + static_cast<ptrdiff_t>(index),
                      [&](const Place& place) { return place.page == places[index].page; });
}

// Finds the places of a group: the entries of its list or, in a group of states, the checkpoints and then the current
// state.
void SequenceStore::find_places(int32_t slot, int32_t group, std::vector<Place>* places) const {
  const PageList& own = list(slot, group);
  const PageTable& pages = table(group);
  places->assign(static_cast<size_t>(own.size), {});
  if (!rules(group).holds_state()) {
    pages.for_each(own, 0, own.size, [&](int64_t i, int32_t page) {
      (*places)[static_cast<size_t>(i)] = {page, pages.available_without(own, i, 0)};
    });
    return;
  }
  places->clear();
  for_each_state_page(slot, [&](int32_t g, int32_t page) {
    if (g == group) places->push_back({page, false});
  });
  for (Place& place : *places) {
    const auto holds =
        std::count_if(places->begin(), places->end(), [&](const Place& p) { return p.page == place.page; });
    place.moved = pages.pages().refs(place.page) - pages.pages().is_indexed(place.page) == holds;
  }
  if (own.size == 0) return;
  const auto holds =
      std::count_if(places->begin(), places->end(), [&](const Place& p) { return p.page == own.tail_page; });
  const bool moved = pages.available_without(own, 0, static_cast<uint32_t>(holds));
  for (Place& place : *places) place.moved = place.page == own.tail_page ? moved : place.moved;
  places->push_back({own.tail_page, moved});
}

// Calls visit(group, index) once for each page that is moved, with the index of its first place.
template <class Visit>
void SequenceStore::for_each_moved(const SuspendedPages& suspended, Visit visit) const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    const std::vector<Place>& places = suspended[static_cast<size_t>(g)];
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i].moved && (!rules(g).holds_state() || is_first(places, i))) visit(g, i);
    }
  }
}

Status SequenceStore::begin_suspend(uint64_t id, std::vector<MovedPage>* moved) {
  int32_t slot = -1;
  KVC_TRY(resolve(id, 0, &slot));
  KVC_TRY(check_idle(slot, 0));
  SuspendedPages pages(static_cast<size_t>(num_groups()));
  for (int32_t g = 0; g < num_groups(); ++g) find_places(slot, g, &pages[static_cast<size_t>(g)]);
  moved->clear();
  const std::span<const int64_t> states = checkpoints(slot);
  for_each_moved(pages, [&](int32_t g, size_t i) {
    const int64_t position = !rules(g).holds_state() ? static_cast<int64_t>(i) * rules(g).page_size
                             : i < states.size()     ? states[i]
                                                     : length(slot);
    moved->push_back({g, pages[static_cast<size_t>(g)][i].page, position});
  });
  suspended_[slot] = std::move(pages);
  set_busy(slot, BusyWith::kSuspend);
  return Status();
}

bool SequenceStore::end_suspend(uint64_t id, bool done) noexcept {
  const int32_t slot = slot_of(id);
  Record& record = records_[slot];
  KVC_ASSERT(record.used && busy(slot) && suspended_.count(slot) == 1, slot, record.state);
  record.state &= static_cast<uint8_t>(~kBusy);
  if (record.removed() || !done) {
    suspended_.erase(slot);
    if (record.removed()) free_slot(slot);
    return record.used;
  }
  record.state |= kSuspended;
  const SuspendedPages& pages = suspended_.find(slot)->second;
  for (int32_t g = 0; g < num_groups(); ++g) {
    for (const Place& place : pages[static_cast<size_t>(g)]) {
      if (place.is_kept()) hold_page(g, place.page);
    }
  }
  drop_lists(slot);
  return true;
}

// Drops the references of the lists and checkpoints. The lists keep their sizes and holes, which other calls read.
void SequenceStore::drop_lists(int32_t slot) noexcept {
  for_each_state_group([&](int32_t g, int32_t ordinal) {
    for (int64_t i = 0; i < records_[slot].checkpoints; ++i) {
      int32_t& page = checkpoint_pages(slot, i)[ordinal];
      unhold_page(g, page);
      page = -1;
    }
  });
  for (int32_t g = 0; g < num_groups(); ++g) {
    PageList& own = edit_list(slot, g);
    PageList shape = own;
    edit_table(g).release(own);
    shape.root = shape.tail_page = -1;
    shape.levels = 0;
    own = shape;
  }
}

// Drops the pages that a suspended sequence keeps.
void SequenceStore::drop_suspended(int32_t slot) noexcept {
  const auto found = suspended_.find(slot);
  for (int32_t g = 0; g < num_groups(); ++g) {
    for (const Place& place : found->second[static_cast<size_t>(g)]) {
      if (place.is_kept()) unhold_page(g, place.page);
    }
  }
  suspended_.erase(found);
  records_[slot].state &= static_cast<uint8_t>(~kSuspended);
}

Status SequenceStore::check_resume(int32_t slot) {
  std::fill(needed_pages_.begin(), needed_pages_.end(), 0);
  const SuspendedPages& pages = suspended_.find(slot)->second;
  for_each_moved(pages, [&](int32_t g, size_t) { ++needed_pages_[static_cast<size_t>(g)]; });
  for (int32_t g = 0; g < num_groups(); ++g) {
    // The resumed list gets nodes of its own, even for pages that other lists also have. reserved_nodes_ does not count
    // these nodes. So enough nodes for the list must be free in addition to reserved_nodes_.
    const std::vector<Place>& places = pages[static_cast<size_t>(g)];
    if (std::none_of(places.begin(), places.end(), [](const Place& place) { return place.is_kept(); })) continue;
    KVC_TRY(check_nodes(g, 0, static_cast<int64_t>(places.size())));
  }
  return check_needed_pages();
}

Status SequenceStore::begin_resume(uint64_t id, std::vector<PageReference>* fresh) {
  int32_t slot = -1;
  KVC_TRY(resolve(id, 0, &slot));
  if ((records_[slot].state & kBusy) != 0) {
    if (!is_suspended(slot)) return busy_error(slot, 0);
    return Status::error(KVC_ERROR_BUSY, "sequence %" PRIu64 " is being resumed", id);
  }
  if (!is_suspended(slot)) return Status::error(KVC_ERROR_ORDER, "sequence %" PRIu64 " is not suspended", id);
  KVC_TRY(check_resume(slot));
  fresh->clear();
  int64_t total = 0;
  for (const int64_t needed : needed_pages_) total += needed;
  fresh->reserve(static_cast<size_t>(total));  // nothing after this can fail
  make_room();
  const SuspendedPages& pages = suspended_.find(slot)->second;
  for (int32_t g = 0, ordinal = 0; g < num_groups(); ++g) {
    const std::vector<Place>& places = pages[static_cast<size_t>(g)];
    if (rules(g).holds_state()) {
      fill_states(slot, g, ordinal++, places, fresh);
    } else {
      fill_list(slot, g, places, fresh);
    }
  }
  set_busy(slot, BusyWith::kResume);
  return Status();
}

void SequenceStore::fill_list(int32_t slot, int32_t group, const std::vector<Place>& places,
                              std::vector<PageReference>* fresh) noexcept {
  PageList& own = edit_list(slot, group);
  const PageList shape = own;
  own = {};
  for (int32_t i = 0; i < shape.size; ++i) {
    if (i == shape.kept && shape.has_hole()) {
      edit_table(group).skip(own, shape.first - shape.kept);
      if ((i = shape.first) == shape.size) break;
    }
    if (const Place& place = places[static_cast<size_t>(i)]; place.moved) {
      fresh->push_back({group, edit_table(group).append(own)});
    } else {
      edit_table(group).append_shared(own, {&place.page, 1});
    }
  }
  own.tail_shared = own.tail_shared || (own.tail_page >= 0 && shape.tail_shared);
}

// Fills in the states of a sequence that is resumed: its checkpoints, and the current state.
void SequenceStore::fill_states(int32_t slot, int32_t group, int32_t ordinal, const std::vector<Place>& places,
                                std::vector<PageReference>* fresh) noexcept {
  const auto count = static_cast<size_t>(records_[slot].checkpoints);
  PageTable& table = edit_table(group);
  PageList& own = edit_list(slot, group);
  own = {};
  for (size_t i = 0; i < places.size(); ++i) {
    const int32_t before = places[i].page;
    PageList taken;
    int32_t page = before;
    if (places[i].moved && is_first(places, i)) {
      fresh->push_back({group, page = table.append(taken)});
    } else if (places[i].moved) {
      const auto same = std::find_if(places.begin(), places.end(), [&](const Place& p) { return p.page == before; });
      page = checkpoint_pages(slot, same - places.begin())[ordinal];
    }
    if (i < count) {
      table.hold_page(page);
      checkpoint_pages(slot, static_cast<int64_t>(i))[ordinal] = page;
    } else {
      table.append_shared(own, {&page, 1});  // marks the page as shared, so the next step takes another page
    }
    table.release(taken);
  }
}

bool SequenceStore::end_resume(uint64_t id, bool done) noexcept {
  const int32_t slot = slot_of(id);
  Record& record = records_[slot];
  KVC_ASSERT(record.used && busy(slot) && suspended_.count(slot) == 1, slot, record.state);
  record.state &= static_cast<uint8_t>(~kBusy);
  if (!done || record.removed()) drop_lists(slot);
  if (record.removed()) {
    free_slot(slot);
    return false;
  }
  if (done) drop_suspended(slot);
  return true;
}

}  // namespace kvc

#include "cache/pending_prefixes.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace kvc {

const PendingPrefixes::Entry* PendingPrefixes::find(uint64_t sequence) const noexcept {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [=](const Entry& entry) { return entry.sequence == sequence; });
  return found == entries_.end() ? nullptr : &*found;
}

PendingPrefixes::Entry& PendingPrefixes::reserve() {
  if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 4);
  return next_;
}

void PendingPrefixes::add(SequenceStore* store) noexcept {
  store->set_pending(store->slot_of(next_.sequence), true);
  entries_.push_back(std::exchange(next_, {}));
}

uint64_t PendingPrefixes::forget(uint64_t sequence) noexcept {
  const Entry* const entry = find(sequence);
  if (entry == nullptr) return 0;
  const std::shared_ptr<LoadProgress> progress = entry->progress;
  entries_.erase(entries_.begin() + (entry - entries_.data()));
  const bool shared =
      std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.progress == progress; });
  return shared ? 0 : progress->job();
}

void PendingPrefixes::shorten(const LoadProgress& progress, int64_t length) noexcept {
  for (Entry& entry : entries_) {
    if (entry.progress.get() == &progress) entry.length = length;
  }
}

void PendingPrefixes::settle(SequenceStore* store, SentMarks* sent) {
  std::erase_if(entries_, [&](const Entry& entry) {
    const int32_t slot = store->slot_of(entry.sequence);
    if ((entry.length < 0 && !entry.progress->all_ready()) || store->busy(slot)) return false;
    store->set_pending(slot, false);
    if (entry.length < 0 || entry.length >= store->length(slot)) return true;
    int64_t length = 0, after = 0;
    store->nearest_position(slot, entry.length, &length, &after);
    length = std::max<int64_t>(length, 0);
    Status cut = store->truncate({&entry.sequence, 1}, {&length, 1});
    KVC_ASSERT(cut.ok(), slot, length);
    sent->note_cut(entry.sequence, length);
    return true;
  });
}

}  // namespace kvc

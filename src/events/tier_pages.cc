#include "events/tier_pages.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "events/event_log.h"

namespace kvc {

TierPages::TierPages(int64_t capacity, EventRing* ring)
    : ring_(*ring),
      entries_(capacity),
      contexts_(capacity),
      tokens_(capacity * ring->page_size()),
      buckets_(capacity == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(capacity)))) {}

TierPages::~TierPages() {
  for (int32_t at = oldest_; at >= 0; at = entries_[at].newer) PrefixContext::release(contexts_[at]);
}

int64_t TierPages::bytes_needed(int64_t capacity, int64_t page_size) noexcept {
  if (capacity == 0) return 0;
  const auto buckets = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(capacity)));
  return capacity * static_cast<int64_t>(sizeof(Entry) + sizeof(PrefixContext*) +
                                         static_cast<size_t>(page_size) * sizeof(int32_t)) +
         buckets * static_cast<int64_t>(sizeof(int32_t));
}

std::span<const int32_t> TierPages::tokens(int32_t at) const noexcept {
  const int64_t size = ring_.page_size();
  return {tokens_.data() + at * size, static_cast<size_t>(size)};
}

// An object key is a digest, so any of its bytes choose a bucket well.
int32_t& TierPages::bucket(const PageKey& object) noexcept {
  uint64_t word = 0;
  std::memcpy(&word, object.data(), sizeof(word));
  return buckets_[static_cast<int64_t>(word & static_cast<uint64_t>(buckets_.size() - 1))];
}

// Returns the entry of an object, or -1.
int32_t TierPages::place_of(const PageKey& object) noexcept {
  if (size_ == 0) return -1;
  int32_t at = bucket(object) - 1;
  while (at >= 0 && entries_[at].object != object) at = entries_[at].next;
  return at;
}

void TierPages::unlink(int32_t at) noexcept {
  const Entry& entry = entries_[at];
  (entry.older >= 0 ? entries_[entry.older].newer : oldest_) = entry.newer;
  (entry.newer >= 0 ? entries_[entry.newer].older : newest_) = entry.older;
}

// Makes an entry that is not in the list the newest one.
void TierPages::use(int32_t at) noexcept {
  entries_[at].older = newest_;
  entries_[at].newer = -1;
  (newest_ >= 0 ? entries_[newest_].newer : oldest_) = at;
  newest_ = at;
}

void TierPages::tell_stored(int32_t at, int32_t tier) noexcept {
  kvc_event event = entries_[at].event;
  event.tier = tier + 1;
  entries_[at].tiers |= bit_of(tier);
  const std::span<const int32_t> from = tokens(at);
  std::copy(from.begin(), from.end(), ring_.add(event, contexts_[at]).begin());
}

// Records that these tiers do not have a page. If no tier is left, forgets the page.
void TierPages::drop(int32_t at, uint8_t tiers) noexcept {
  Entry& entry = entries_[at];
  for (int32_t tier = 0; tier < kMaxTiers; ++tier) {
    if ((entry.tiers & tiers & bit_of(tier)) == 0) continue;
    kvc_event event = {};
    event.kind = KVC_EVENT_REMOVED;
    event.group = entry.event.group;
    event.tier = tier + 1;
    std::memcpy(event.key, entry.event.key, sizeof(event.key));
    const std::span<int32_t> none = ring_.add(event);
    std::fill(none.begin(), none.end(), 0);
  }
  entry.tiers = static_cast<uint8_t>(entry.tiers & ~tiers);
  if (entry.tiers != 0) return;
  unlink(at);
  int32_t& first = bucket(entry.object);
  if (first == at + 1) {
    first = entry.next + 1;
  } else {
    int32_t before = first - 1;
    while (entries_[before].next != at) before = entries_[before].next;
    entries_[before].next = entry.next;
  }
  PrefixContext::release(std::exchange(contexts_[at], nullptr));
  entry.next = std::exchange(free_, at);
  --size_;
}

bool TierPages::find(const PageKey& object, int32_t tier) noexcept {
  const int32_t at = place_of(object);
  if (at < 0) return false;
  unlink(at);
  use(at);
  if ((entries_[at].tiers & bit_of(tier)) == 0) tell_stored(at, tier);
  return true;
}

void TierPages::add(const PageKey& object, int32_t tier, const TierPageName& page) noexcept {
  if (entries_.size() == 0 || find(object, tier)) return;
  if (size_ == entries_.size()) drop(oldest_, 0xFF);
  const int32_t at = free_ >= 0 ? std::exchange(free_, entries_[free_].next) : fresh_++;
  Entry& entry = entries_[at];
  entry = {};
  entry.event.kind = KVC_EVENT_STORED;
  entry.event.group = page.group;
  entry.event.position = page.position;
  entry.event.session = page.session;
  entry.event.flags = page.salted ? KVC_EVENT_SALTED : 0;
  std::memcpy(entry.event.key, page.key.data(), sizeof(entry.event.key));
  if (page.parent != nullptr) {
    entry.event.flags |= KVC_EVENT_HAS_PARENT;
    std::memcpy(entry.event.parent, page.parent->data(), sizeof(entry.event.parent));
  }
  entry.object = object;
  contexts_[at] = PrefixContext::hold(page.context);
  std::copy(page.tokens.begin(), page.tokens.end(), tokens_.data() + at * ring_.page_size());
  int32_t& first = bucket(object);
  entry.next = first - 1;
  first = at + 1;
  ++size_;
  use(at);
  tell_stored(at, tier);
}

void TierPages::remove(const PageKey& object, int32_t tier) noexcept {
  if (const int32_t at = place_of(object); at >= 0) drop(at, bit_of(tier));
}

void TierPages::list_pages(EventList* out) const {
  std::vector<int32_t> order;
  order.reserve(static_cast<size_t>(size_));
  for (int32_t at = oldest_; at >= 0; at = entries_[at].newer) order.push_back(at);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return entries_[a].event.position < entries_[b].event.position; });
  for (int32_t tier = 0; tier < kMaxTiers; ++tier) {
    for (const int32_t at : order) {
      if ((entries_[at].tiers & bit_of(tier)) == 0) continue;
      out->events.push_back(entries_[at].event);
      out->events.back().tier = tier + 1;
      out->contexts.emplace_back(contexts_[at]);
      const std::span<const int32_t> from = tokens(at);
      const size_t end = out->tokens.size();
      out->tokens.resize(end + from.size());
      std::copy(from.begin(), from.end(), out->tokens.data() + end);
    }
  }
}

}  // namespace kvc

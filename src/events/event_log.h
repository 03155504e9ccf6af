// EventLog: writes the changes of a prefix index and of the pages in tiers into a ring of events, and lists the pages
// that the index and the tiers have.
//
// Pure: the epoch (a random number that identifies the cache) is an argument. Thread safety: none; calls are made under
// the owner's lock. The log must not outlive the index.
#pragma once

#include <cstdint>
#include <vector>

#include "events/event_ring.h"
#include "events/tier_pages.h"
#include "prefix/prefix_index.h"

namespace kvc {

// Events, with the contexts and the tokens of their pages: [events.size()] and [events.size(), page_size]. An event
// that is not KVC_EVENT_STORED has no context, and its tokens are 0.
struct EventList {
  std::vector<kvc_event> events;
  std::vector<ContextRef> contexts;
  std::vector<int32_t> tokens;
};

class EventLog final : public PrefixListener {
 public:
  // The index must have page keys, and must be empty. tier_pages: number of pages in tiers of which events tell.
  EventLog(int64_t capacity, int64_t page_size, int64_t tier_pages, uint64_t epoch, const PrefixIndex& index)
      : ring_(capacity, page_size), tier_pages_(tier_pages, &ring_), epoch_(epoch), index_(index) {}

  uint64_t epoch() const noexcept { return epoch_; }
  const EventRing& ring() const noexcept { return ring_; }
  TierPages& tier_pages() noexcept { return tier_pages_; }

  // Lists the pages that the index and then the tiers have now, each as a KVC_EVENT_STORED. If `after_clear` is set, a
  // KVC_EVENT_CLEARED comes first. It tells the reader to drop all earlier pages.
  void list_pages(bool after_clear, EventList* out) const;

  void stored(const NamedPage& page) noexcept override;
  void removed(const NamedPage& page) noexcept override;
  void cleared() noexcept override;
  // A cleared event would tell readers that the tiers have lost their pages too.
  bool needs_each() const noexcept override { return tier_pages_.size() > 0; }

 private:
  EventRing ring_;
  TierPages tier_pages_;
  const uint64_t epoch_;
  const PrefixIndex& index_;
};

}  // namespace kvc

// EventLog: writes what happens to a prefix index into a ring of events, and lists what the index holds.
//
// Pure: the epoch is an argument. Thread safety: none; the owner locks. The log must not outlive the index.
#pragma once

#include <cstdint>
#include <vector>

#include "events/event_ring.h"
#include "prefix/prefix_index.h"

namespace kvc {

// Events with the tokens of stored pages: [events.size(), page_size], 0 for other events.
struct EventList {
  std::vector<kvc_event> events;
  std::vector<int32_t> tokens;
};

class EventLog final : public PrefixListener {
 public:
  // The index has keys, and is empty.
  EventLog(int64_t capacity, int64_t page_size, uint64_t epoch, const PrefixIndex& index)
      : ring_(capacity, page_size), epoch_(epoch), index_(index) {}

  uint64_t epoch() const noexcept { return epoch_; }
  const EventRing& ring() const noexcept { return ring_; }

  // The pages that the index holds now. after_clear: the first event says that all pages are gone.
  void list_pages(bool after_clear, EventList* out) const;

  void stored(const NamedPage& page) noexcept override;
  void removed(const NamedPage& page) noexcept override;
  void cleared() noexcept override;

 private:
  EventRing ring_;
  const uint64_t epoch_;
  const PrefixIndex& index_;
};

}  // namespace kvc

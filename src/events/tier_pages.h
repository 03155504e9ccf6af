// TierPages: the pages in tiers of which events tell. For each page it keeps what a stored event says, and which tiers
// have the page. A change adds an event to the ring.
//
// A page is named by the key of its object in the tiers. If there is no room for another page, the page that was stored
// or found least recently is forgotten: the ring then gets a removed event for each tier that has it.
// Pure. Thread safety: none; calls are made under the owner's lock. Allocates in the constructor, and in list_pages.
// Ownership: it is an owner of the contexts of its pages.
// Invariants
//   1. A page has at least one tier.
//   2. A reader of the ring that has read all events has, for each tier, the pages of list_pages.
#pragma once

#include <cstdint>
#include <span>

#include "base/lazy_array.h"
#include "events/event_ring.h"
#include "keys/page_key.h"

namespace kvc {

struct EventList;

// What events say of a page in a tier.
struct TierPageName {
  PageKey key = {};
  const PageKey* parent = nullptr;  // key of the page before this page; null for the first page of a sequence
  int32_t group = 0;
  int64_t position = 0;  // of its first token in its sequence
  uint64_t session = 0;
  bool salted = false;
  const PrefixContext* context = nullptr;  // nullable
  std::span<const int32_t> tokens;         // [page_size]
};

class TierPages {
 public:
  static constexpr int32_t kMaxTiers = 8;

  // capacity: number of pages, below 2^31; 0 = no page is ever kept. Throws std::bad_alloc.
  TierPages(int64_t capacity, EventRing* ring);
  ~TierPages();
  TierPages(const TierPages&) = delete;
  TierPages& operator=(const TierPages&) = delete;
  static int64_t bytes_needed(int64_t capacity, int64_t page_size) noexcept;

  int64_t size() const noexcept { return size_; }

  // Records that a tier has a page, under the key of its object. tier: 0..kMaxTiers - 1. If the page is known, it
  // becomes the most recently found page.
  void add(const PageKey& object, int32_t tier, const TierPageName& page) noexcept;
  // The same without what events say of the page. Returns false, and changes nothing, if that is not known yet.
  bool find(const PageKey& object, int32_t tier) noexcept;
  // Records that a tier does not have an object.
  void remove(const PageKey& object, int32_t tier) noexcept;
  // Calls has(object) for each page of a tier, and records that the tier does not have those for which it returns
  // false.
  template <class Has>
  void keep_if(int32_t tier, Has has) noexcept {
    for (int32_t at = oldest_; at >= 0;) {
      const int32_t newer = entries_[at].newer;
      if ((entries_[at].tiers & bit_of(tier)) != 0 && !has(entries_[at].object)) drop(at, bit_of(tier));
      at = newer;
    }
  }
  // Appends a stored event for each page of each tier. Those of a tier are ordered by position, so parents come first.
  // Throws std::bad_alloc.
  void list_pages(EventList* out) const;

 private:
  struct Entry {
    kvc_event event;  // the stored event of the page, without number and tier
    PageKey object;
    int32_t next;          // the next entry of the same bucket, or of the free list; -1 = none
    int32_t older, newer;  // in the order of use; -1 = none
    uint8_t tiers;         // a bit for each tier that has the page
  };

  static constexpr uint8_t bit_of(int32_t tier) noexcept { return static_cast<uint8_t>(1 << tier); }
  int32_t& bucket(const PageKey& object) noexcept;
  int32_t place_of(const PageKey& object) noexcept;
  void use(int32_t at) noexcept;
  void unlink(int32_t at) noexcept;
  void tell_stored(int32_t at, int32_t tier) noexcept;
  void drop(int32_t at, uint8_t tiers) noexcept;
  std::span<const int32_t> tokens(int32_t at) const noexcept;

  EventRing& ring_;
  LazyArray<Entry> entries_;                  // [capacity]
  LazyArray<const PrefixContext*> contexts_;  // [capacity]
  LazyArray<int32_t> tokens_;                 // [capacity, page_size]
  LazyArray<int32_t> buckets_;                // [a power of two, at least capacity]: 1 + first entry; 0 = none
  int32_t oldest_ = -1, newest_ = -1;
  int32_t free_ = -1, fresh_ = 0;  // first free entry that was used before; first entry that was never used
  int64_t size_ = 0;
};

}  // namespace kvc

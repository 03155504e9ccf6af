// EventRing: the newest events of a prefix index. Events are numbered from 0. In a full ring, a new event replaces the
// oldest event, so the cost of adding an event does not depend on readers.
//
// Pure. Thread safety: none; calls are made under the owner's lock. Allocates in the constructor only. Ownership: the
// ring is an owner of the contexts of its events. Invariant: the ring has the events with the numbers [oldest(),
// newest()), at most `capacity` of them.
#pragma once

#include <cstdint>
#include <span>

#include "base/lazy_array.h"
#include "kvcache.h"
#include "prefix/prefix_context.h"

namespace kvc {

class EventRing {
 public:
  // capacity: number of events. page_size: number of tokens. Both are > 0.
  EventRing(int64_t capacity, int64_t page_size)
      : page_size_(page_size), events_(capacity), contexts_(capacity), tokens_(capacity * page_size) {}
  ~EventRing() {
    for (uint64_t number = oldest(); number < newest_; ++number) PrefixContext::release(context(number));
  }
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  static int64_t bytes_needed(int64_t capacity, int64_t page_size) noexcept {
    return capacity * static_cast<int64_t>(sizeof(kvc_event) + sizeof(PrefixContext*) +
                                           static_cast<size_t>(page_size) * sizeof(int32_t));
  }

  int64_t page_size() const noexcept { return page_size_; }
  uint64_t newest() const noexcept { return newest_; }  // the number that the next event gets
  uint64_t oldest() const noexcept {
    const auto capacity = static_cast<uint64_t>(events_.size());
    return newest_ > capacity ? newest_ - capacity : 0;
  }

  // Adds an event, and sets its number. context: of the page; nullable. Returns where the caller must write the tokens
  // of the page, [page_size].
  std::span<int32_t> add(const kvc_event& event, const PrefixContext* context = nullptr) noexcept {
    kvc_event& added = events_[place(newest_)];
    PrefixContext::release(std::exchange(contexts_[place(newest_)], PrefixContext::hold(context)));
    added = event;
    added.number = newest_;
    return {tokens_.data() + place(newest_++) * page_size_, static_cast<size_t>(page_size_)};
  }

  // at returns the event with this number, and tokens returns its tokens, [page_size]. context returns the context of
  // its page, which may be null. The ring must still have the event.
  const kvc_event& at(uint64_t number) const noexcept { return events_[place(number)]; }
  const PrefixContext* context(uint64_t number) const noexcept { return contexts_[place(number)]; }
  std::span<const int32_t> tokens(uint64_t number) const noexcept {
    return {tokens_.data() + place(number) * page_size_, static_cast<size_t>(page_size_)};
  }

 private:
  int64_t place(uint64_t number) const noexcept {
    return static_cast<int64_t>(number % static_cast<uint64_t>(events_.size()));
  }

  int64_t page_size_;
  LazyArray<kvc_event> events_;               // [capacity]
  LazyArray<const PrefixContext*> contexts_;  // [capacity]
  LazyArray<int32_t> tokens_;                 // [capacity, page_size]
  uint64_t newest_ = 0;
};

}  // namespace kvc

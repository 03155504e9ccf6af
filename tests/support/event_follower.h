// EventFollower: a reader of a cache's events. It keeps the pages of the prefix index and of tiers, and compares them
// with a snapshot.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include "kvcache.h"

namespace kvt {

using PageKey = std::array<uint8_t, 32>;

class EventFollower {
 public:
  struct Page {
    PageKey parent;  // zeros without one
    int64_t position;
    std::vector<int32_t> tokens;
    bool salted;
    bool operator==(const Page &) const = default;
  };
  using Pages = std::map<std::tuple<PageKey, int32_t, int32_t>, Page>;  // by key, group and tier

  // fingerprint: [32], that of the cache.
  EventFollower(kvc_cache *cache, int64_t page_size, const uint8_t *fingerprint)
      : cache_(cache), page_size_(page_size), fingerprint_(fingerprint) {}

  // Records the tokens of each page key of a published query.
  void remember(const kvc_prefix_query &query) {
    const auto pages = static_cast<size_t>(query.num_tokens / page_size_);
    std::vector<PageKey> keys(pages + 1);
    kvc_page_keys_args args;
    kvc_page_keys_args_init(&args);
    args.tokens = query.tokens;
    args.num_tokens = query.num_tokens;
    args.page_size = page_size_;
    args.fingerprint = fingerprint_;
    args.salt = reinterpret_cast<const uint8_t *>(&query.salt);
    args.salt_bytes = query.salt == 0 ? 0 : 8;
    args.salt_begin = query.salt_begin;
    args.adapter = query.adapter;
    args.adapter_bytes = query.adapter_bytes;
    args.num_media = query.num_media;
    args.media_begins = query.media_begins;
    args.media_tokens = query.media_tokens;
    args.media_hashes = query.media_hashes;
    ASSERT_EQ(kvc_page_keys(&args, keys[0].data(), nullptr), KVC_OK);
    for (size_t i = 0; i < pages; i++) {
      const auto begin = static_cast<int64_t>(i) * page_size_;
      const Page page{i > 0 ? keys[i - 1] : PageKey{},
                      begin,
                      {query.tokens + begin, query.tokens + begin + page_size_},
                      query.salt != 0 && begin + page_size_ > query.salt_begin};
      ASSERT_EQ(meanings_.try_emplace(keys[i], page).first->second, page);
    }
  }

  // Reads further events, a few in each call. Returns whether events were lost; then the follower has read a snapshot.
  bool read() {
    std::vector<kvc_event> events(7);
    std::vector<int32_t> tokens(events.size() * static_cast<size_t>(page_size_));
    for (;;) {
      kvc_events_args args;
      kvc_events_args_init(&args);
      args.next = next_;
      args.events = events.data();
      args.tokens = tokens.data();
      args.capacity = static_cast<int64_t>(events.size());
      const kvc_events_range range = call(kvc_events_read, args);
      EXPECT_LE(range.end, range.newest);
      EXPECT_EQ(range.end - range.begin, static_cast<uint64_t>(range.count));
      if (epoch_ == 0) epoch_ = range.epoch;
      EXPECT_EQ(range.epoch, epoch_);
      if (range.begin != next_) {
        pages_ = snapshot(&next_);
        return true;
      }
      if (range.count == 0) return false;
      for (int64_t i = 0; i < range.count; i++) {
        EXPECT_EQ(events[static_cast<size_t>(i)].number, next_ + static_cast<uint64_t>(i));
        apply(events[static_cast<size_t>(i)], tokens.data() + i * page_size_);
      }
      next_ = range.end;
    }
  }

  // Returns the pages of the index, and the number of the next event.
  Pages snapshot(uint64_t *next) const {
    kvc_events_args args;
    kvc_events_args_init(&args);
    const kvc_events_range sizes = call(kvc_events_snapshot, args);
    std::vector<kvc_event> events(static_cast<size_t>(sizes.count));
    std::vector<int32_t> tokens(events.size() * static_cast<size_t>(page_size_));
    args.events = events.data();
    args.tokens = tokens.data();
    args.capacity = sizes.count;
    const kvc_events_range range = call(kvc_events_snapshot, args);
    EXPECT_EQ(range.end, range.newest);
    *next = range.end;
    Pages pages;
    for (size_t i = 0; i < events.size(); i++) {
      EXPECT_EQ(events[i].kind, KVC_EVENT_STORED);
      EXPECT_TRUE(pages.insert(named(events[i], tokens.data() + static_cast<int64_t>(i) * page_size_)).second);
    }
    return pages;
  }

  // After read: checks that the pages are exactly those of the index, and that each key has the published tokens.
  void check() const {
    uint64_t next = 0;
    const Pages held = snapshot(&next);
    EXPECT_EQ(next, next_);
    EXPECT_TRUE(held == pages_) << held.size() << " pages in the index, " << pages_.size() << " by events";
    for (const auto &[name, page] : pages_) {
      const auto meaning = meanings_.find(std::get<0>(name));
      ASSERT_NE(meaning, meanings_.end()) << "a page of tokens that were never published";
      ASSERT_EQ(meaning->second, page);
    }
  }

  const Pages &pages() const { return pages_; }
  // The pages of tiers alone.
  Pages tier_pages() const {
    Pages pages = pages_;
    std::erase_if(pages, [](const auto &page) { return std::get<2>(page.first) == 0; });
    return pages;
  }
  uint64_t next() const { return next_; }
  int64_t clears() const { return clears_; }

 private:
  template <class Call>
  kvc_events_range call(Call function, const kvc_events_args &args) const {
    kvc_events_range range;
    kvc_events_range_init(&range);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(function(cache_, &args, &range, &error), KVC_OK) << error.message;
    EXPECT_NE(range.epoch, 0u);
    return range;
  }
  std::pair<Pages::key_type, Page> named(const kvc_event &event, const int32_t *tokens) const {
    PageKey key, parent = {};
    std::memcpy(key.data(), event.key, key.size());
    const bool has_parent = (event.flags & KVC_EVENT_HAS_PARENT) != 0;
    EXPECT_EQ(has_parent, event.position > 0);
    if (has_parent) std::memcpy(parent.data(), event.parent, parent.size());
    return {{key, event.group, event.tier},
            {parent, event.position, {tokens, tokens + page_size_}, (event.flags & KVC_EVENT_SALTED) != 0}};
  }
  void apply(const kvc_event &event, const int32_t *tokens) {
    PageKey key;
    std::memcpy(key.data(), event.key, key.size());
    switch (event.kind) {
      case KVC_EVENT_STORED:
        EXPECT_TRUE(pages_.insert(named(event, tokens)).second) << "stored twice";
        break;
      case KVC_EVENT_REMOVED:
        EXPECT_EQ(pages_.erase({key, event.group, event.tier}), 1u) << "removed, but not stored";
        break;
      default:
        EXPECT_EQ(event.kind, KVC_EVENT_CLEARED);
        EXPECT_EQ(event.group, -1);
        pages_.clear();
        clears_++;
    }
  }

  kvc_cache *const cache_;
  const int64_t page_size_;
  const uint8_t *const fingerprint_;
  std::map<PageKey, Page> meanings_;
  uint64_t next_ = 0, epoch_ = 0;
  Pages pages_;
  int64_t clears_ = 0;
};

}  // namespace kvt

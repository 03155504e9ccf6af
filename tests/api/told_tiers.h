// A cache with tiers, and a reader of its events.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "event_follower.h"
#include "tiers_fixture.h"

namespace kvt {

constexpr int64_t kObjectBytes = 4096;  // of a host tier and of a disk tier, for the small pages of these tests

inline TieredSpec told_spec(int64_t tier_pages = 1000, int64_t events = 100000) {
  TieredSpec spec;
  spec.events = events, spec.tier_pages = tier_pages;
  return spec;
}

// A cache with tiers, and a reader of its events.
struct ToldTiers {
  explicit ToldTiers(const TieredSpec &spec = told_spec())
      : engine(spec), model(32, spec.model), reader(engine.cache(), 4, model.data()) {}

  void serve(const Tokens &tokens, uint64_t salt = 0) {
    reader.remember(Prefix::query(tokens, salt));
    engine.serve(tokens, salt);
    engine.wait_stored();
  }
  void match(const Tokens &tokens, uint64_t salt = 0) {
    const kvc_prefix_query query = Prefix::query(tokens, salt);
    kvc_prefix_hit hit;
    kvc_prefix_hit_init(&hit);
    EXPECT_EQ(kvc_prefix_match(engine.cache(), &query, &hit, nullptr), KVC_OK);
  }
  // Reads on, and returns the number of pages that a tier has by the events.
  size_t in_tier(int32_t tier) {
    EXPECT_FALSE(reader.read());
    reader.check();
    const EventFollower::Pages pages = reader.tier_pages();
    return static_cast<size_t>(
        std::count_if(pages.begin(), pages.end(), [=](const auto &p) { return std::get<2>(p.first) == tier; }));
  }
  std::vector<kvc_event> read(uint64_t next) const {
    std::vector<kvc_event> events(1000);
    kvc_events_args args;
    kvc_events_args_init(&args);
    args.next = next;
    args.events = events.data();
    args.capacity = 1000;
    kvc_events_range range;
    kvc_events_range_init(&range);
    EXPECT_EQ(kvc_events_read(engine.cache(), &args, &range, nullptr), KVC_OK);
    events.resize(static_cast<size_t>(range.count));
    return events;
  }
  std::string message(bool snapshot = false) const {
    std::string bytes(100000, '\0');
    kvc_events_args args;
    kvc_events_args_init(&args);
    args.bytes = reinterpret_cast<uint8_t *>(bytes.data());
    args.capacity_bytes = static_cast<int64_t>(bytes.size());
    kvc_events_range range;
    kvc_events_range_init(&range);
    EXPECT_EQ((snapshot ? kvc_events_snapshot : kvc_events_read)(engine.cache(), &args, &range, nullptr), KVC_OK);
    bytes.resize(static_cast<size_t>(range.num_bytes));
    return bytes;
  }

  TieredEngine engine;
  std::vector<uint8_t> model;
  EventFollower reader;
};

}  // namespace kvt

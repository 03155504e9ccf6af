// Random calls over tiers: a reader of events always has the pages of the pools and of the tiers.
#include <algorithm>
#include <random>

#include "told_tiers.h"

namespace kvt {
namespace {

struct RandomTold {
  RandomTold(uint64_t seed, std::vector<TieredSpec::Group> groups, int64_t tier_pages)
      : random(seed), t([&] {
          TieredSpec spec = told_spec(tier_pages, seed % 3 == 0 ? 40 : 100000);
          spec.groups = std::move(groups);
          spec.pages = 24;
          return spec;
        }()) {
    EXPECT_EQ(t.engine.add_host(17 * kObjectBytes), KVC_OK);
    EXPECT_EQ(t.engine.add(folder, 40 * kObjectBytes, KVC_TIER_SYNC_NONE,
                           seed % 2 == 0 ? KVC_TIER_STORE_PUBLISHED : KVC_TIER_STORE_EVICTED),
              KVC_OK);
    EXPECT_EQ(t.engine.add(other), KVC_OK);
  }
  Tokens prompt() {
    Tokens tokens;
    for (uint64_t i = 0, n = 4 + random() % 26; i < n; i++) tokens.push_back(random() % 12 == 0 ? 2 : 1);
    return tokens;
  }
  void step() {
    const Tokens tokens = prompt();
    const uint64_t salt = random() % 3;
    const kvc_prefix_query query = Prefix::query(tokens, salt);
    switch (random() % 8) {
      case 0:
        EXPECT_EQ(kvc_prefix_drop(t.engine.cache(), &query, nullptr, nullptr), KVC_OK);
        break;
      case 1:
        t.engine.load(tokens, salt);
        break;
      case 2:
        if (!other.objects.empty()) other.lose(random());
        break;
      case 3:
        t.match(tokens, salt);
        break;
      case 4:
        if (random() % 4 > 0) break;
        EXPECT_EQ(kvc_cache_clear(t.engine.cache(), nullptr), KVC_OK);
        break;
      default:
        t.reader.remember(query);
        served.push_back({tokens, salt});
        t.engine.serve(tokens, salt);
    }
  }
  // A snapshot and all later events give what the next snapshot gives.
  void check() {
    t.engine.wait_stored();
    gaps += t.reader.read();
    t.reader.check();
  }
  // The pages of the tiers that report, in the eyes of the reader.
  EventFollower::Pages reported() const {
    EventFollower::Pages pages = t.reader.tier_pages();
    std::erase_if(pages, [](const auto &page) { return std::get<2>(page.first) > 2; });
    return pages;
  }
  // The tiers that report have exactly the pages that the reader knows of: to look for all of them changes nothing.
  void look_up_all() {
    check();
    const EventFollower::Pages before = reported();
    t.engine.forget_all();
    for (const auto &[tokens, salt] : served) t.match(tokens, salt);
    check();
    EXPECT_TRUE(reported() == before) << before.size() << " and " << reported().size();
    most = std::max(most, before.size());
  }

  std::mt19937_64 random;
  const Folder folder;
  MemoryTier other;  // it does not report
  ToldTiers t;
  std::vector<std::pair<Tokens, uint64_t>> served;
  int64_t gaps = 0;
  size_t most = 0;
};

TEST(TiersEvents, RandomCallsGiveExactlyThePagesOfTheTiers) {
  const std::vector<TieredSpec::Group> one = {TieredSpec::Group{}};
  const std::vector<TieredSpec::Group> mixed = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  int64_t gaps = 0;
  for (uint64_t seed = 0; seed < 6 && !testing::Test::HasFailure(); seed++) {
    SCOPED_TRACE(seed);
    RandomTold world(seed, seed < 4 ? one : mixed, 1000);
    for (int i = 0; i < 200 && !testing::Test::HasFailure(); i++) {
      world.step();
      if (i % 5 == 0) world.check();
      if (i % 50 == 49) world.look_up_all();
    }
    EXPECT_GT(world.most, 20u);
    gaps += world.gaps;
  }
  EXPECT_GT(gaps, 0);
}

// There are more pages than events tell of. A reader still has exactly those of a snapshot.
TEST(TiersEvents, RandomCallsWithFewPages) {
  for (uint64_t seed = 10; seed < 14 && !testing::Test::HasFailure(); seed++) {
    SCOPED_TRACE(seed);
    RandomTold world(seed, {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}}, 7);
    for (int i = 0; i < 150 && !testing::Test::HasFailure(); i++) {
      world.step();
      if (i % 5 == 0) world.check();
    }
  }
}

}  // namespace
}  // namespace kvt

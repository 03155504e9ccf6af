// KVC_TIER_STORE_EVICTED: a tier stores pages shortly before the pools evict them.
#include <random>

#include "tiers_fixture.h"

namespace kvt {
namespace {

using Group = TieredSpec::Group;

Tokens prompt_of(int32_t number, int32_t tokens = 16) { return count_to(tokens, 1000 * number); }

// A pool of 40 pages. A quarter of them is 10.
TEST(TierStoresEvicted, PagesThatAreEvictedNext) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_EVICTED), KVC_OK);
  for (int32_t i = 1; i <= 7; i++) engine.serve(prompt_of(i));  // 4 pages each
  engine.wait_stored();
  EXPECT_EQ(tier.num_objects(), 0);
  engine.serve(prompt_of(1));  // used again: not among the next pages
  engine.serve(prompt_of(8));
  engine.wait_stored();
  EXPECT_EQ(tier.num_objects(), 12);  // 8 pages are free, so 12 more are listed
  EXPECT_EQ(engine.traffic().pages_stored, 12);
  for (int32_t i = 9; i <= 20; i++) {
    engine.serve(prompt_of(i));
    engine.wait_stored();
  }
  EXPECT_EQ(engine.traffic().pages_dropped, 0);
  EXPECT_EQ(engine.traffic().pages_stored, tier.num_objects());  // none twice
  const int64_t stored = tier.num_objects();
  EXPECT_LT(stored, 4 * 20);
  engine.forget_all();  // dropped, and not evicted
  engine.wait_stored();
  EXPECT_EQ(tier.num_objects(), stored);
  for (int32_t i = 2; i <= 10; i++) {
    EXPECT_EQ(engine.load(prompt_of(i)), 16) << i;
    EXPECT_EQ(engine.serve(prompt_of(i)).tokens, 15) << i;
  }
  EXPECT_EQ(engine.load(prompt_of(20)), 0);
}

TEST(TierStoresEvicted, OtherPoliciesHoldToo) {
  MemoryTier evicted, longer, all;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(evicted, KVC_TIER_STORE_EVICTED), KVC_OK);
  ASSERT_EQ(engine.add(longer, KVC_TIER_STORE_EVICTED, 17), KVC_OK);
  for (int32_t i = 1; i <= 4; i++) {
    engine.serve(prompt_of(i), 0, KVC_PREFIX_KEEP_PRIVATE);
    engine.serve(prompt_of(100 + i));
    engine.serve(prompt_of(200 + i, 20));
    engine.wait_stored();
  }
  ASSERT_EQ(engine.add(all), KVC_OK);
  for (int32_t i = 5; i <= 12; i++) {
    engine.serve(prompt_of(i), 0, KVC_PREFIX_KEEP_PRIVATE);
    engine.wait_stored();
  }
  EXPECT_EQ(evicted.num_objects(), 4 * 4 + 4 * 5);
  EXPECT_EQ(longer.num_objects(), 4 * 5);
  EXPECT_EQ(all.num_objects(), 0);
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, prompt_of(300), 0, 12);
  EXPECT_EQ(engine.suspend(seq), KVC_OK);  // such a tier takes suspended sequences
  EXPECT_EQ(evicted.num_objects(), 4 * 4 + 4 * 5 + 3);
  EXPECT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, prompt_of(300), 12);
  engine.remove(seq);
}

// The index has room for 24 pages, and evicts pages when it is full although the pool has free pages. A step that needs
// many pages at once evicts pages too.
TEST(TierStoresEvicted, PagesThatABeginEvicts) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_EVICTED), KVC_OK);
  for (int32_t i = 1; i <= 7; i++) engine.serve(prompt_of(i));
  const kvc_seq seq = engine.add_sequence();  // no publish and no remove from here on
  const Tokens decoded = count_to(100, 50000);
  for (int64_t length = 0; length < 100; length += 4) {
    engine.compute(seq, decoded, length, length + 4);
    engine.wait_stored();
  }
  EXPECT_GT(tier.num_objects(), 0);
  engine.remove(seq);
  engine.forget_all();
  EXPECT_EQ(engine.load(prompt_of(2)), 16);
}

// Random prompts over all kinds of groups: each published prefix can be attached, from the pools or after a load.
class EvictedPages : public ::testing::TestWithParam<int> {};

TEST_P(EvictedPages, CanBeLoaded) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  TieredSpec spec;
  spec.pages = 64;
  if (GetParam() & 1) spec.groups.push_back({KVC_ROW_KV, 6});
  if (GetParam() & 2) spec.groups.push_back({KVC_ROW_STATE});
  if (GetParam() & 4) spec.groups.erase(spec.groups.begin());
  if (spec.groups.empty()) return;
  MemoryTier tier;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_EVICTED), KVC_OK);
  std::vector<Tokens> published;
  int64_t loads = 0;
  for (int round = 0; round < 150; round++) {
    Tokens prompt;
    if (!published.empty() && random() % 2 == 0) {  // continues a prefix of an earlier prompt
      prompt = published[random() % published.size()];
      if (random() % 2 == 0) prompt.resize(4 * (1 + random() % (prompt.size() / 4)));
    }
    for (uint64_t more = 1 + random() % 3; more > 0 && prompt.size() < 24; more--) {
      for (int i = 0; i < 4; i++) prompt.push_back(1000 * round + static_cast<int32_t>(prompt.size()));
    }
    kvc_prefix_query query = Prefix::query(prompt);
    query.flags = KVC_PREFIX_ALLOW_ALL;
    kvc_job job = 0;
    ASSERT_EQ(kvc_prefix_load(engine.cache(), &query, nullptr, nullptr, &job, nullptr), KVC_OK);
    loads += engine.wait(job) > 0;
    engine.serve(prompt);
    engine.wait_stored();
    published.push_back(prompt);
    for (size_t i = 0; i < published.size(); i += 1 + random() % 8) {
      kvc_prefix_query known = Prefix::query(published[i]);
      known.flags = KVC_PREFIX_ALLOW_ALL;
      kvc_prefix_hit hit;
      kvc_prefix_hit_init(&hit);
      ASSERT_EQ(kvc_prefix_match(engine.cache(), &known, &hit, nullptr), KVC_OK);
      ASSERT_EQ(hit.load_tokens, known.num_tokens) << "prompt " << i << " of " << published.size();
    }
  }
  EXPECT_GT(loads, 10);
  EXPECT_EQ(engine.traffic().pages_dropped, 0);
  EXPECT_EQ(engine.traffic().pages_stored, tier.num_objects());
}

INSTANTIATE_TEST_SUITE_P(Groups, EvictedPages, ::testing::Range(0, 8));

}  // namespace
}  // namespace kvt

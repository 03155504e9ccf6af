// Which pages tiers store, and which pages a load takes from them.
#include "tiers_fixture.h"

namespace kvt {
namespace {

TEST(Tiers, PoliciesSayWhatIsStored) {
  const Tokens prompt = count_to(16), longer = count_to(20);
  const auto stored = [&](int32_t store, int64_t min_tokens, uint32_t flags, int times) {
    MemoryTier tier;
    TieredEngine engine{TieredSpec{}};
    EXPECT_EQ(engine.add(tier, store, min_tokens), KVC_OK);
    for (int i = 0; i < times; i++) engine.serve(i == 0 ? prompt : longer, 0, flags);
    engine.wait_stored();
    return tier.objects.size();
  };
  EXPECT_EQ(stored(KVC_TIER_STORE_PUBLISHED, 0, 0, 1), 4u);
  EXPECT_EQ(stored(KVC_TIER_STORE_PUBLISHED, 0, KVC_PREFIX_KEEP_PRIVATE, 2), 0u);
  EXPECT_EQ(stored(KVC_TIER_STORE_PUBLISHED, 17, 0, 1), 0u);
  EXPECT_EQ(stored(KVC_TIER_STORE_PUBLISHED, 16, 0, 1), 4u);
  EXPECT_EQ(stored(KVC_TIER_STORE_REUSED, 0, 0, 1), 0u);
  EXPECT_EQ(stored(KVC_TIER_STORE_REUSED, 0, 0, 2), 4u);
  EXPECT_EQ(stored(KVC_TIER_STORE_NOTHING, 0, 0, 2), 0u);
}

// A page that one tier has taken is also given to another tier, as soon as the policy of that tier allows it.
TEST(Tiers, EachTierHasItsOwnPolicy) {
  MemoryTier all, reused, longer, late;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(all), KVC_OK);
  ASSERT_EQ(engine.add(reused, KVC_TIER_STORE_REUSED), KVC_OK);
  ASSERT_EQ(engine.add(longer, KVC_TIER_STORE_PUBLISHED, 12), KVC_OK);
  engine.serve(count_to(8));
  engine.wait_stored();
  EXPECT_EQ(all.num_objects(), 2);
  EXPECT_EQ(reused.num_objects(), 0);
  EXPECT_EQ(longer.num_objects(), 0);
  ASSERT_EQ(engine.add(late), KVC_OK);
  engine.serve(count_to(16));
  engine.wait_stored();
  EXPECT_EQ(all.num_objects(), 4);
  EXPECT_EQ(reused.num_objects(), 2);
  EXPECT_EQ(longer.num_objects(), 4);
  EXPECT_EQ(late.num_objects(), 4);
  engine.serve(count_to(16));
  engine.wait_stored();
  EXPECT_EQ(reused.num_objects(), 4);
  EXPECT_EQ(all.stores, 4);  // none twice
  EXPECT_EQ(longer.stores, 4);
}

// The second request makes the state after 16 tokens a reused one, although it is published at 28 tokens.
TEST(Tiers, StatesOfReusedPrefixesAreStored) {
  MemoryTier tier;
  TieredSpec spec;
  spec.groups = {TieredSpec::Group{}, TieredSpec::Group{KVC_ROW_STATE}};
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier, KVC_TIER_STORE_REUSED), KVC_OK);
  Tokens first = count_to(24), second = count_to(28), third = count_to(20);
  first[17] = 901, second[17] = 902, third[17] = 903;
  engine.serve(first, 0, 0, {16});
  engine.wait_stored();
  EXPECT_EQ(tier.num_objects(), 0);
  EXPECT_EQ(engine.serve(second).tokens, 16);
  engine.wait_stored();
  EXPECT_EQ(tier.num_objects(), 4 + 1);
  engine.forget_all();
  EXPECT_EQ(engine.load(third), 16);
  EXPECT_EQ(engine.serve(third).tokens, 16);
}

TEST(Tiers, NothingIsLoadedThatIsFasterToCompute) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(16);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  tier.bytes_per_second = 1000;  // an object of some hundred bytes takes most of a second
  kvc_prefix_hit hit;
  EXPECT_EQ(engine.start(prompt, &hit, 0, 1000), 0u);
  EXPECT_EQ(hit.load_tokens, 0);
  EXPECT_EQ(hit.load_ns, 0);
  EXPECT_EQ(hit.tier_tokens[0], 15);
  EXPECT_EQ(engine.wait(engine.start(prompt, &hit)), 16);
  EXPECT_GT(hit.load_ns, 1000000000);
  engine.forget_all();
  const kvc_job job = engine.start(prompt, &hit, 0, hit.load_ns);
  EXPECT_NE(job, 0u);
  EXPECT_EQ(engine.wait(job), 16);
}

// The first tier has the first 8 tokens and takes no time. The second one has all, and is slow. In a cache with a
// window or states, only the lengths that were published can be loaded.
TEST(Tiers, ALoadEndsWhereComputingIsFaster) {
  const TieredSpec::Group full{}, window{KVC_ROW_KV, 4}, states{KVC_ROW_STATE};
  for (const std::vector<TieredSpec::Group> &groups :
       std::vector<std::vector<TieredSpec::Group>>{{full}, {full, window}, {full, window, states}}) {
    MemoryTier fast, slow;
    TieredSpec spec;
    spec.groups = groups;
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add(fast), KVC_OK);
    ASSERT_EQ(engine.add(slow), KVC_OK);
    const Tokens prompt = count_to(20), first = count_to(8);
    engine.serve(first);
    engine.wait_stored();
    const auto of_first = fast.objects;
    engine.serve(prompt, 0, 0, {16});
    engine.wait_stored();
    fast.objects = of_first;
    slow.bytes_per_second = 1000;  // an object of some hundred bytes takes most of a second
    engine.forget_all();
    kvc_prefix_hit hit;
    const kvc_job job = engine.start(prompt, &hit, 0, 1000);
    EXPECT_NE(job, 0u);
    EXPECT_EQ(hit.load_tokens, 8);
    EXPECT_EQ(hit.load_ns, 0);
    EXPECT_EQ(engine.wait(job), 8);
    EXPECT_EQ(engine.start(prompt, &hit, 0, 1000), 0u);  // the rest is faster to compute
    EXPECT_EQ(hit.tokens, 8);
    engine.forget_all();
    EXPECT_EQ(engine.wait(engine.start(prompt, &hit, 0, 1'000'000'000)), groups.size() == 3 ? 16 : 20);
    EXPECT_EQ(hit.load_tokens, groups.size() == 3 ? 16 : 19);
    EXPECT_GT(hit.load_ns, 1'000'000'000);
    EXPECT_EQ(engine.serve(prompt).tokens, groups.size() == 3 ? 16 : 19);
  }
}

// A query leaves out its last token. If this token ends a page, the state after the page is of no use, and a window may
// need the page before. Then the load ends at the page before.
TEST(Tiers, ALoadEndsWhereAttachFindsIt) {
  const TieredSpec::Group full{}, states{KVC_ROW_STATE};
  for (const int64_t window : {0, 4, 5, 6}) {
    MemoryTier tier;
    TieredSpec spec;
    spec.groups = {full, window == 0 ? states : TieredSpec::Group{KVC_ROW_KV, window}};
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens prompt = count_to(20);
    engine.serve(prompt, 0, 0, {16});
    engine.wait_stored();
    engine.forget_all();
    kvc_prefix_hit hit;
    const kvc_job job = engine.start(prompt, &hit);
    const int64_t loaded = engine.wait(job), expected = window == 4 || window == 6 ? 19 : 16;
    EXPECT_EQ(hit.load_tokens, expected) << window;
    EXPECT_EQ(loaded, expected == 19 ? 20 : 16) << window;
    EXPECT_EQ(engine.serve(prompt).tokens, expected) << window;
  }
}

// An object that is not that of its page is removed. So the next load takes the object of another tier, and the next
// publish stores the page again. A tier that stores nothing keeps the object.
TEST(Tiers, ADamagedObjectIsReplaced) {
  for (const int32_t store : {KVC_TIER_STORE_PUBLISHED, KVC_TIER_STORE_NOTHING}) {
    MemoryTier first, second;
    {
      TieredEngine engine{TieredSpec{}};
      ASSERT_EQ(engine.add(first), KVC_OK);
      engine.serve(count_to(9));
      engine.wait_stored();
    }
    second.objects = first.objects;
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(first, store), KVC_OK);
    ASSERT_EQ(engine.add(second, KVC_TIER_STORE_NOTHING), KVC_OK);
    for (size_t object = 0; object < 2; object++) first.flip(object, 300);
    EXPECT_EQ(engine.load(count_to(9)), 0);
    if (store == KVC_TIER_STORE_NOTHING) {
      EXPECT_EQ(engine.load(count_to(9)), 0);
      EXPECT_EQ(first.num_objects(), 2);
      continue;
    }
    int64_t loaded = 0;  // objects are removed in the background
    for (int tries = 0; tries < 2000 && loaded < 8; tries++) {
      loaded += engine.load(count_to(9));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(loaded, 8);
    engine.serve(count_to(9));
    engine.wait_stored();
    EXPECT_TRUE(first.objects == second.objects);
  }
}

}  // namespace
}  // namespace kvt

// Tiers that answer PENDING while they search, as a store on another machine does.

#include "tiers_fixture.h"

namespace kvt {
namespace {

TieredSpec full_window_states() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  return spec;
}

void set_pending(MemoryTier &tier, int64_t count) {
  std::lock_guard lock(tier.mutex);
  tier.pending = count;
}

TEST(TierSearch, JobsWaitForIt) {
  for (const TieredSpec &spec : {TieredSpec{}, full_window_states()}) {
    MemoryTier tier;
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens prompt = count_to(32);
    engine.serve(prompt);
    engine.wait_stored();
    engine.forget_all();
    for (const int64_t pending : {1, 3, 20}) {  // a wait takes 15 ms on Windows, and a search ends after a second
      set_pending(tier, pending);
      kvc_prefix_hit hit;
      const Tokens query = count_to(33);  // attach leaves out the last token
      const kvc_job job = engine.start(query, &hit);
      ASSERT_NE(job, 0u);
      EXPECT_EQ(hit.tokens, 0);
      EXPECT_LT(hit.load_tokens, 32);  // the pages that are known so far
      int32_t descriptor = -1;
      ASSERT_EQ(kvc_cache_job_descriptor(engine.cache(), &descriptor, nullptr), KVC_OK);
      EXPECT_TRUE(wait_descriptor(descriptor, 30000));
      EXPECT_EQ(engine.wait(job), 32);
      EXPECT_EQ(engine.serve(query).tokens, 32);  // checks the contents
      set_pending(tier, 0);
      engine.wait_stored();
      engine.forget_all();
    }
  }
}

TEST(TierSearch, FindsNothing) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  set_pending(tier, 3);
  const kvc_job job = engine.start(count_to(32));
  ASSERT_NE(job, 0u);
  EXPECT_EQ(engine.wait(job), 0);
  kvc_job_info info;
  kvc_job_info_init(&info);
  EXPECT_EQ(kvc_job_poll(engine.cache(), job, &info, nullptr), KVC_ERROR_STALE_ID);
  EXPECT_EQ(engine.start(count_to(32)), 0u);
}

// A tier that never answers delays a load by a second, and nothing else.
TEST(TierSearch, EndsWithoutAnAnswer) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  engine.serve(count_to(32));
  engine.wait_stored();
  engine.forget_all();
  set_pending(tier, INT64_MAX);
  EXPECT_EQ(engine.load(count_to(32)), 0);
  EXPECT_EQ(engine.serve(count_to(32)).tokens, 0);
}

TEST(TierSearch, IsCancelled) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  engine.serve(count_to(32));
  engine.wait_stored();
  engine.forget_all();
  set_pending(tier, INT64_MAX);
  const kvc_job job = engine.start(count_to(32));
  ASSERT_EQ(kvc_job_cancel(engine.cache(), job, nullptr), KVC_OK);
  set_pending(tier, 0);
  EXPECT_EQ(engine.wait(job), 0);
  EXPECT_EQ(engine.load(count_to(32)), 32);
  set_pending(tier, INT64_MAX);
  engine.forget_all();
  EXPECT_NE(engine.start(count_to(32)), 0u);  // destroy ends it
}

// The pools are full when the search has ended: the job ends, and the engine computes.
TEST(TierSearch, NoRoomForWhatWasFound) {
  MemoryTier tier;
  TieredSpec spec;
  spec.pages = 12;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  set_pending(tier, 1);
  const kvc_job job = engine.start(prompt);
  ASSERT_NE(job, 0u);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(engine.cache(), 1, &seq, nullptr), KVC_OK);
  engine.compute(seq, count_to(48), 0, 48);  // all 12 pages
  EXPECT_EQ(engine.wait(job), 0);
  ASSERT_EQ(kvc_seq_remove(engine.cache(), 1, &seq, nullptr), KVC_OK);
  EXPECT_EQ(engine.load(prompt), 32);
}

// The gate is applied to what was found.
TEST(TierSearch, GateIsAppliedAfterIt) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  engine.serve(count_to(32));
  engine.wait_stored();
  engine.forget_all();
  tier.bytes_per_second = 1000;  // a page takes seconds
  set_pending(tier, 1);
  EXPECT_EQ(engine.wait(engine.start(count_to(32), nullptr, 0, 1000)), 0);
  set_pending(tier, 1);
  EXPECT_EQ(engine.wait(engine.start(count_to(32), nullptr, 0, INT64_MAX / 100)), 32);
}

// A page is stored when the tier has said that it lacks it, and then only once. One that is evicted meanwhile is
// dropped.
TEST(TierSearch, StoresWaitForIt) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  set_pending(tier, 500);
  engine.serve(count_to(32));
  engine.wait_stored();
  EXPECT_EQ(engine.traffic().pages_stored, 8);
  EXPECT_EQ(tier.objects.size(), 8u);
  set_pending(tier, INT64_MAX);
  engine.serve(Tokens(32, 9));
  EXPECT_EQ(engine.traffic().pages_waiting, 8);
  engine.forget_all();
  EXPECT_EQ(engine.traffic().pages_waiting, 0);
  EXPECT_EQ(engine.traffic().pages_dropped, 8);
  EXPECT_EQ(tier.stores, 8);
}

}  // namespace
}  // namespace kvt

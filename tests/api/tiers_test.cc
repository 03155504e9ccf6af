// Tiers through the C API: each promise of section 15 of the header.
#include "tiers_fixture.h"

namespace kvt {
namespace {

TieredSpec full_and_window(int64_t window = 6) {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, window}};
  return spec;
}

TieredSpec full_and_states() {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_STATE, 0}};
  return spec;
}

TEST(Tiers, EvictedPagesAreLoaded) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(30);
  EXPECT_EQ(engine.serve(prompt).tokens, 0);
  engine.wait_stored();
  EXPECT_EQ(tier.objects.size(), 7u);  // only whole pages
  EXPECT_EQ(engine.traffic().pages_stored, 7);
  engine.forget_all();
  kvc_prefix_hit hit;
  const kvc_job job = engine.start(prompt, &hit);
  ASSERT_NE(job, 0u);
  EXPECT_EQ(hit.tokens, 0);
  EXPECT_EQ(hit.load_tokens, 28);
  EXPECT_EQ(engine.wait(job), 28);
  EXPECT_EQ(engine.traffic().pages_loaded, 7);
  EXPECT_EQ(engine.serve(prompt).tokens, 28);
  EXPECT_EQ(engine.start(prompt), 0u);  // the pools have it
  refused(engine.cache(), {KVC_ERROR_STALE_ID}, "kvc_job_poll", [&](kvc_error *e) {
    kvc_job_info info;
    kvc_job_info_init(&info);
    return kvc_job_poll(engine.cache(), job, &info, e);
  });
}

TEST(Tiers, ARestartFindsWhatWasThere) {
  const Folder folder;
  const Tokens prompt = count_to(64);
  {
    TieredEngine engine{full_and_window()};
    ASSERT_EQ(engine.add(folder), KVC_OK);
    engine.serve(prompt);
    engine.wait_stored();
    EXPECT_EQ(engine.traffic().pages_not_stored, 0);
  }
  TieredEngine engine{full_and_window()};
  ASSERT_EQ(engine.add(folder), KVC_OK);
  EXPECT_EQ(engine.load(prompt), 64);
  EXPECT_EQ(engine.serve(prompt).tokens, 63);  // the last token is computed, for its logits
}

TEST(Tiers, ALoadExtendsWhatThePoolsHave) {
  MemoryTier tier;
  TieredEngine engine{full_and_window(6)};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(40);
  engine.serve(prompt, 0, 0, {16, 24});
  engine.wait_stored();
  kvc_prefix_query query = Prefix::query(prompt);
  query.num_tokens = 28;
  ASSERT_EQ(kvc_prefix_drop(engine.cache(), &query, nullptr, nullptr), KVC_OK);
  kvc_prefix_hit hit;
  const kvc_job job = engine.start(prompt, &hit);
  EXPECT_EQ(hit.tokens, 24);
  EXPECT_EQ(hit.load_tokens, 39);
  ASSERT_NE(job, 0u);
  EXPECT_EQ(engine.wait(job), 16);
  EXPECT_EQ(engine.serve(prompt).tokens, 39);
}

// A sliding group needs the pages that the next query sees. A tier has such pages only for positions at which the
// prefix was published.
TEST(Tiers, AWindowIsServedWhereItsPagesWereStored) {
  MemoryTier tier;
  TieredEngine engine{full_and_window(6)};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(40);
  engine.serve(prompt, 0, 0, {16});  // window pages of 16 and of 40
  engine.wait_stored();
  engine.forget_all();
  Tokens other = prompt;
  other[30] = 999;  // 28 tokens in common: the window before 28 was never stored
  EXPECT_EQ(engine.load(other), 16);
  EXPECT_EQ(engine.serve(other).tokens, 16);
  EXPECT_EQ(engine.load(prompt), 24);
}

TEST(Tiers, StatesAreServedWhereTheyWerePublished) {
  MemoryTier tier;
  TieredEngine engine{full_and_states()};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(33);
  engine.serve(prompt, 0, 0, {8, 18, 24});  // 18 is inside a page: no object has its state
  engine.wait_stored();
  engine.forget_all();
  Tokens other = prompt;
  other[22] = 999;
  EXPECT_EQ(engine.load(other), 8);
  EXPECT_EQ(engine.serve(other).tokens, 8);
  EXPECT_EQ(engine.load(prompt), 16);
  EXPECT_EQ(engine.serve(prompt).tokens, 24);
}

TEST(Tiers, AFailedPageGivesAShorterPrefix) {
  for (const int64_t failed : {0, 1, 4, 6}) {
    MemoryTier tier;
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens prompt = count_to(30);
    engine.serve(prompt);
    engine.wait_stored();
    engine.forget_all();
    tier.fail_load = failed;
    EXPECT_EQ(engine.load(prompt), failed * 4);
    EXPECT_GE(engine.traffic().pages_not_loaded, 1);
    EXPECT_EQ(engine.serve(prompt).tokens, failed * 4);
  }
}

TEST(Tiers, AFailedPageOfAWindowGivesNothing) {
  MemoryTier tier;
  TieredEngine engine{full_and_window()};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(40);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  tier.fail_load = 3;
  EXPECT_EQ(engine.load(prompt), 0);
  EXPECT_EQ(engine.serve(prompt).tokens, 0);
}

// A change of any byte of an object is found.
TEST(Tiers, ADamagedObjectIsAMiss) {
  for (size_t byte = 0; byte < 400; byte += 1) {
    MemoryTier tier;
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens prompt = count_to(9);
    engine.serve(prompt);
    engine.wait_stored();
    ASSERT_EQ(tier.objects.size(), 2u);
    engine.forget_all();
    tier.flip(0, byte);
    const int64_t loaded = engine.load(prompt);
    EXPECT_TRUE(loaded == 0 || loaded == 4) << byte;
    EXPECT_EQ(engine.serve(prompt).tokens, loaded);
    if (HasFailure()) return;
  }
}

// Even if two names were equal, the bytes of one page never appear for another.
TEST(Tiers, AnObjectUnderAnotherNameIsAMiss) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens a = count_to(8), b = count_to(8, 100);
  engine.serve(a, 1);
  engine.wait_stored();
  const auto of_a = tier.objects;
  engine.serve(b, 2);
  engine.wait_stored();
  for (auto &[name, object] : tier.objects) {
    if (of_a.count(name) == 0) object = of_a.begin()->second;
  }
  engine.forget_all();
  EXPECT_EQ(engine.load(b, 2), 0);
  EXPECT_EQ(engine.load(a, 1), 8);
}

TEST(Tiers, SaltsModelsAndLayoutsAreApart) {
  MemoryTier tier;
  const Tokens prompt = count_to(16);
  {
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    engine.serve(prompt, 1);
    engine.wait_stored();
    engine.forget_all();
    EXPECT_EQ(engine.start(prompt, nullptr, 2), 0u);
    EXPECT_EQ(engine.start(prompt), 0u);
    EXPECT_EQ(engine.load(prompt, 1), 16);
  }
  TieredSpec other_model, other_layout, same;
  other_model.model = 8;
  other_layout.heads = 2;
  for (const TieredSpec &spec : {other_model, other_layout, same}) {
    TieredEngine engine{spec};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    EXPECT_EQ(engine.start(prompt, nullptr, 1) != 0, spec.model == 7 && spec.heads == 1);
  }
  EXPECT_EQ(tier.closed, 4);
}

TEST(Tiers, ALoadThatRunsHoldsItsPages) {
  MemoryTier tier;
  TieredSpec spec;
  spec.pages = 10;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(24);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  tier.holds = true;
  const kvc_job job = engine.start(prompt);
  ASSERT_NE(job, 0u);
  int32_t descriptor = -1;
  ASSERT_EQ(kvc_cache_job_descriptor(engine.cache(), &descriptor, nullptr), KVC_OK);
  EXPECT_FALSE(wait_descriptor(descriptor, 20));
  kvc_stats stats;
  kvc_stats_init(&stats);
  ASSERT_EQ(kvc_cache_stats(engine.cache(), -1, &stats, nullptr), KVC_OK);
  EXPECT_EQ(stats.pages_used, 6);
  EXPECT_EQ(stats.num_sequences, 1);
  refused(engine.cache(), {KVC_ERROR_BUSY}, "kvc_cache_clear",
          [&](kvc_error *e) { return kvc_cache_clear(engine.cache(), e); });
  // Another load of the same tokens does not fit.
  const kvc_prefix_query query = Prefix::query(prompt);
  const kvc_error error = refused(engine.cache(), {KVC_ERROR_OUT_OF_PAGES}, "kvc_prefix_load", [&](kvc_error *e) {
    kvc_job none = 0;
    return kvc_prefix_load(engine.cache(), &query, nullptr, nullptr, &none, e);
  });
  EXPECT_EQ(error.required, 6);
  EXPECT_EQ(error.available, 4);
  tier.release();
  EXPECT_TRUE(wait_descriptor(descriptor, 10000));
  EXPECT_EQ(engine.wait(job), 24);
  EXPECT_FALSE(wait_descriptor(descriptor, 0));
  EXPECT_EQ(kvc_cache_clear(engine.cache(), nullptr), KVC_OK);
}

TEST(Tiers, ALoadNeedsASequence) {
  MemoryTier tier;
  TieredSpec spec;
  spec.sequences = 1;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(24);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  engine.add_sequence();
  const kvc_prefix_query query = Prefix::query(prompt);
  const kvc_error error = refused(engine.cache(), {KVC_ERROR_TOO_MANY_SEQUENCES}, "kvc_prefix_load", [&](kvc_error *e) {
    kvc_job none = 0;
    return kvc_prefix_load(engine.cache(), &query, nullptr, nullptr, &none, e);
  });
  EXPECT_EQ(error.required, 1);
  EXPECT_EQ(error.available, 0);
}

TEST(Tiers, ACancelledLoadEnds) {
  MemoryTier tier;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(120);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  tier.holds = true;
  const kvc_job job = engine.start(prompt);
  ASSERT_EQ(kvc_job_cancel(engine.cache(), job, nullptr), KVC_OK);
  tier.release();
  EXPECT_LE(engine.wait(job), 120);
  refused(engine.cache(), {KVC_ERROR_STALE_ID}, "kvc_job_cancel",
          [&](kvc_error *e) { return kvc_job_cancel(engine.cache(), job, e); });
  EXPECT_EQ(engine.traffic().pages_loading, 0);
  engine.serve(prompt);
}

TEST(Tiers, ACacheWithALoadCanBeDestroyed) {
  MemoryTier tier;
  {
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    const Tokens prompt = count_to(24);
    engine.serve(prompt);
    engine.wait_stored();
    engine.forget_all();
    ASSERT_NE(engine.start(prompt), 0u);
  }
  EXPECT_EQ(tier.closed, 1);
}

TEST(Tiers, ATierThatIsFullOfWorkIsTriedAgain) {
  MemoryTier tier;
  tier.refuse = 3;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(24);
  engine.serve(prompt);
  engine.wait_stored();
  EXPECT_EQ(tier.objects.size(), 6u);
  engine.forget_all();
  tier.refuse = 2;
  EXPECT_EQ(engine.load(prompt), 24);
}

TEST(Tiers, APageThatIsEvictedBeforeItsTurnIsNotStored) {
  MemoryTier tier;
  tier.holds = true;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  const Tokens prompt = count_to(120);
  engine.serve(prompt);  // the tier holds 16 stores, and 14 wait
  while (engine.traffic().pages_waiting > 30) std::this_thread::yield();
  engine.forget_all();
  tier.release();
  engine.wait_stored();
  const kvc_tier_traffic traffic = engine.traffic();
  EXPECT_EQ(traffic.pages_stored + traffic.pages_dropped, 30);
  const int64_t loaded = engine.load(prompt);
  EXPECT_LE(loaded, traffic.pages_stored * 4);
  EXPECT_EQ(engine.serve(prompt).tokens, loaded);
}

TEST(Tiers, TheFirstTierThatHasAPageGivesIt) {
  MemoryTier first, second;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(first), KVC_OK);
  ASSERT_EQ(engine.add(second), KVC_OK);
  const Tokens prompt = count_to(16);
  engine.serve(prompt);
  engine.wait_stored();
  EXPECT_EQ(first.objects.size(), 4u);
  EXPECT_EQ(second.objects.size(), 4u);
  engine.forget_all();
  first.objects.erase(first.objects.begin());
  EXPECT_EQ(engine.load(prompt), 16);
  EXPECT_EQ(first.loads, 3);
  EXPECT_EQ(second.loads, 1);
}

TEST(Tiers, EqualCallsGiveEqualPages) {
  MemoryTier tiers[2];
  std::vector<uint64_t> digests;
  for (MemoryTier &tier : tiers) {
    TieredEngine engine{full_and_window()};
    ASSERT_EQ(engine.add(tier), KVC_OK);
    for (int round = 0; round < 4; round++) {
      const Tokens prompt = count_to(30 + round, round % 2 * 100 + 1);
      engine.load(prompt);
      engine.serve(prompt);
      engine.wait_stored();
      if (round == 1) engine.forget_all();
    }
    uint64_t digest = 0;
    ASSERT_EQ(kvc_cache_digest(engine.cache(), &digest, nullptr), KVC_OK);
    digests.push_back(digest);
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// Requests and loads from several threads, with pools that are too small for all of them.
TEST(Tiers, ThreadsShareThem) {
  MemoryTier tier;
  TieredSpec spec = full_and_window();
  spec.pages = 60;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add(tier), KVC_OK);
  std::vector<std::thread> threads;
  std::mutex turn;  // of the engine's own calls: it runs one step at a time
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 40; round++) {
        const Tokens prompt = count_to(20 + (round * 7 + t) % 40, round % 5 * 1000 + 1);
        kvc_job job = 0;
        {
          const std::lock_guard lock(turn);
          job = engine.start(prompt);
        }
        engine.wait(job);
        const std::lock_guard lock(turn);
        engine.serve(prompt);
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  engine.wait_stored();
  EXPECT_GT(engine.traffic().pages_loaded + engine.traffic().pages_stored, 0);
}

}  // namespace
}  // namespace kvt

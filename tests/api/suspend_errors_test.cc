// Suspends and resumes that fail or are refused: the sequence is as it was, and nothing leaks.
#include "tiers_fixture.h"

namespace kvt {
namespace {

struct Suspended {
  MemoryTier tier;
  TieredEngine engine;
  Tokens tokens = count_to(40);
  kvc_seq seq = 0;

  explicit Suspended(const TieredSpec &spec = TieredSpec{}) : engine(spec) {
    EXPECT_EQ(engine.add(tier), KVC_OK);
    seq = engine.add_sequence();
    engine.compute(seq, tokens, 0, 18);
  }
};

TEST(SuspendErrors, AFullTierPassesPagesToTheNext) {
  MemoryTier reader, first, second;
  first.fail_store = 2;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add(reader, KVC_TIER_STORE_NOTHING), KVC_OK);
  ASSERT_EQ(engine.add(first), KVC_OK);
  ASSERT_EQ(engine.add(second), KVC_OK);
  const Tokens tokens = count_to(40);
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, tokens, 0, 18);
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(reader.num_objects(), 0);
  EXPECT_EQ(first.num_objects(), 4);
  EXPECT_EQ(second.num_objects(), 1);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, tokens, 18);
  EXPECT_TRUE(first.becomes_empty() && second.becomes_empty());
}

// Two suspended sequences fill the host tier. Published pages cannot evict them, and the third one is refused.
TEST(SuspendErrors, AFullHostTierKeepsWhatItHas) {
  TieredSpec spec;
  spec.pages = 60;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add_host(12 * 4096), KVC_OK);
  const Tokens tokens = count_to(20);
  kvc_seq seqs[3];
  for (kvc_seq &seq : seqs) {
    seq = engine.add_sequence();
    engine.compute(seq, tokens, 0, 20);
  }
  ASSERT_EQ(engine.suspend(seqs[0]), KVC_OK);
  ASSERT_EQ(engine.suspend(seqs[1]), KVC_OK);
  engine.serve(count_to(40, 700));
  engine.wait_stored();
  EXPECT_EQ(engine.suspend(seqs[2]), KVC_ERROR_IO);
  engine.check(seqs[2], tokens, 20);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(engine.resume(seqs[i]), KVC_OK);
    engine.check(seqs[i], tokens, 20);
  }
  kvc_status suspended = KVC_ERROR_IO;  // until the objects are removed, in the background
  for (int tries = 0; suspended == KVC_ERROR_IO && tries < 10000; tries++) suspended = engine.suspend(seqs[2]);
  ASSERT_EQ(suspended, KVC_OK);
  ASSERT_EQ(engine.resume(seqs[2]), KVC_OK);
}

// A suspend that does not fit beside the suspended sequences of a host tier evicts no published page from it.
TEST(SuspendErrors, ASuspendWithoutRoomEvictsNothing) {
  TieredSpec spec;
  spec.pages = 60;
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add_host(12 * 4096), KVC_OK);
  const Tokens tokens = count_to(52), published = count_to(24, 700);
  const kvc_seq small = engine.add_sequence(), large = engine.add_sequence();
  engine.compute(small, tokens, 0, 20);
  engine.compute(large, tokens, 0, 32);
  ASSERT_EQ(engine.suspend(small), KVC_OK);  // 5 pages
  engine.serve(published);                   // 6 pages
  engine.wait_stored();
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(engine.suspend(large, &error), KVC_ERROR_IO);  // 8 pages
  EXPECT_NE(std::string(error.message).find("no tier took page 7 of"), std::string::npos) << error.message;
  engine.check(large, tokens, 32);
  EXPECT_EQ(engine.traffic().pages_waiting, 0);
  engine.forget_all();
  EXPECT_EQ(engine.load(published), 24);
  ASSERT_EQ(engine.resume(small), KVC_OK);
  engine.check(small, tokens, 20);
  kvc_status suspended = KVC_ERROR_IO;  // until the objects of `small` are removed, in the background
  for (int tries = 0; suspended == KVC_ERROR_IO && tries < 10000; tries++) suspended = engine.suspend(large);
  ASSERT_EQ(suspended, KVC_OK);
  ASSERT_EQ(engine.resume(large), KVC_OK);
  engine.check(large, tokens, 32);
}

// With a second tier, pages that do not fit in a host tier go there.
TEST(SuspendErrors, PagesBeyondTheHostTierGoToTheNext) {
  MemoryTier second;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(3 * 4096), KVC_OK);
  ASSERT_EQ(engine.add(second), KVC_OK);
  const Tokens tokens = count_to(20);
  const kvc_seq seq = engine.add_sequence();
  engine.compute(seq, tokens, 0, 20);
  ASSERT_EQ(engine.suspend(seq), KVC_OK);
  EXPECT_EQ(second.num_objects(), 2);
  ASSERT_EQ(engine.resume(seq), KVC_OK);
  engine.check(seq, tokens, 20);
}

TEST(SuspendErrors, AFailedStoreLeavesTheSequenceAsItWas) {
  Suspended s;
  s.tier.fail_store = 3;
  kvc_error error = KVC_ERROR_INIT;
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(s.engine.cache(), &before, nullptr), KVC_OK);
  EXPECT_EQ(s.engine.suspend(s.seq, &error), KVC_ERROR_IO);
  EXPECT_NE(std::string(error.message).find("no tier took page 3 of"), std::string::npos) << error.message;
  ASSERT_EQ(kvc_cache_digest(s.engine.cache(), &after, nullptr), KVC_OK);
  EXPECT_EQ(before, after);
  EXPECT_EQ(s.engine.traffic().sequences_suspended, 0);
  EXPECT_TRUE(s.tier.becomes_empty());
  EXPECT_EQ(s.engine.traffic().pages_waiting, 0);
  s.engine.check(s.seq, s.tokens, 18);
  s.engine.compute(s.seq, s.tokens, 18, 19);
}

TEST(SuspendErrors, ALostOrDamagedObjectLeavesItSuspended) {
  for (const bool lost : {false, true}) {
    Suspended s;
    ASSERT_EQ(s.engine.suspend(s.seq), KVC_OK);
    auto kept = s.tier.objects;
    if (lost) {
      s.tier.objects.erase(s.tier.objects.begin());
    } else {
      s.tier.flip(1, 600);
    }
    uint64_t before = 0, after = 0;
    ASSERT_EQ(kvc_cache_digest(s.engine.cache(), &before, nullptr), KVC_OK);
    EXPECT_EQ(s.engine.resume(s.seq), KVC_ERROR_IO);
    ASSERT_EQ(kvc_cache_digest(s.engine.cache(), &after, nullptr), KVC_OK);
    EXPECT_EQ(s.engine.available_pages(0), 40);
    EXPECT_EQ(kvc_cache_check_invariants(s.engine.cache(), nullptr), KVC_OK);
    s.tier.objects = kept;  // the tier is well again
    ASSERT_EQ(s.engine.resume(s.seq), KVC_OK);
    s.engine.check(s.seq, s.tokens, 18);
    EXPECT_TRUE(s.tier.becomes_empty());
  }
}

// An object of another page, also of the same sequence, is a miss.
TEST(SuspendErrors, ObjectsAreNotExchanged) {
  Suspended s;
  ASSERT_EQ(s.engine.suspend(s.seq), KVC_OK);
  auto &objects = s.tier.objects;
  std::swap(objects.begin()->second, std::next(objects.begin())->second);
  EXPECT_EQ(s.engine.resume(s.seq), KVC_ERROR_IO);
  std::swap(objects.begin()->second, std::next(objects.begin())->second);
  EXPECT_EQ(s.engine.resume(s.seq), KVC_OK);
}

TEST(SuspendErrors, CancelledJobsLeaveTheSequenceAsItWas) {
  TieredSpec spec;
  spec.pages = 60;
  Suspended s(spec);
  s.tokens = count_to(200);
  s.engine.compute(s.seq, s.tokens, 18, 200);  // more pages than are stored at once
  for (const bool resuming : {false, true}) {
    if (resuming) {
      ASSERT_EQ(s.engine.suspend(s.seq), KVC_OK);
    }
    s.tier.holds = true;
    kvc_job job = 0;
    ASSERT_EQ((resuming ? kvc_seq_resume : kvc_seq_suspend)(s.engine.cache(), s.seq, &job, nullptr), KVC_OK);
    refused(s.engine.cache(), {KVC_ERROR_BUSY}, "kvc_cache_clear",
            [&](kvc_error *e) { return kvc_cache_clear(s.engine.cache(), e); });
    refused(s.engine.cache(), {KVC_ERROR_BUSY}, resuming ? "kvc_seq_resume" : "kvc_seq_suspend", [&](kvc_error *e) {
      kvc_job second = 0;
      return (resuming ? kvc_seq_resume : kvc_seq_suspend)(s.engine.cache(), s.seq, &second, e);
    });
    const int64_t length = 10;
    refused(s.engine.cache(), {resuming ? KVC_ERROR_SUSPENDED : KVC_ERROR_BUSY}, "kvc_seq_truncate",
            [&](kvc_error *e) { return kvc_seq_truncate(s.engine.cache(), 1, &s.seq, &length, e); },
            {resuming ? "is being resumed" : "is being suspended"});
    ASSERT_EQ(kvc_job_cancel(s.engine.cache(), job, nullptr), KVC_OK);
    s.tier.release();
    EXPECT_EQ(s.engine.end(job), KVC_ERROR_CANCELLED);
    EXPECT_EQ(s.engine.traffic().sequences_suspended, resuming);
    EXPECT_EQ(s.engine.traffic().pages_waiting, 0);
    EXPECT_EQ(s.engine.traffic().pages_loading, 0);
    EXPECT_EQ(s.engine.available_pages(0), resuming ? 60 : 10);
    if (!resuming) {
      EXPECT_TRUE(s.tier.becomes_empty());
    }
  }
  ASSERT_EQ(s.engine.resume(s.seq), KVC_OK);
  s.engine.check(s.seq, s.tokens, 200);
}

TEST(SuspendErrors, CallsOnASuspendedSequenceAreRefused) {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_STATE, 0}};
  Suspended s(spec);
  ASSERT_EQ(s.engine.suspend(s.seq), KVC_OK);
  kvc_cache *const cache = s.engine.cache();
  const auto no = [&](const char *function, auto call) {
    const kvc_error error = refused(cache, {KVC_ERROR_SUSPENDED}, function, call);
    EXPECT_NE(std::string(error.message).find("is suspended"), std::string::npos) << error.message;
  };
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &s.seq, batch.append_lengths = &one, batch.num_sequences = 1;
  kvc_forward f = 0;
  kvc_seq child = 0;
  kvc_job job = 0;
  const int64_t length = 10;
  no("kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(cache, &batch, e); });
  no("kvc_forward_begin", [&](kvc_error *e) { return kvc_forward_begin(cache, &batch, nullptr, &f, e); });
  no("kvc_seq_fork", [&](kvc_error *e) { return kvc_seq_fork(cache, 1, &s.seq, nullptr, &child, nullptr, e); });
  no("kvc_seq_truncate", [&](kvc_error *e) { return kvc_seq_truncate(cache, 1, &s.seq, &length, e); });
  no("kvc_seq_checkpoint", [&](kvc_error *e) { return kvc_seq_checkpoint(cache, 1, &s.seq, e); });
  no("kvc_seq_suspend", [&](kvc_error *e) { return kvc_seq_suspend(cache, s.seq, &job, e); });
  kvc_prefix_query query = Prefix::query(s.tokens);
  query.num_tokens = 10;
  no("kvc_prefix_publish", [&](kvc_error *e) { return kvc_prefix_publish(cache, s.seq, &query, nullptr, nullptr, e); });
  kvc_save_args save;
  kvc_save_args_init(&save);
  save.write = [](void *, const void *, int64_t) { return 0; };
  no("kvc_seq_save", [&](kvc_error *e) { return kvc_seq_save(cache, s.seq, &save, nullptr, e); });
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.position_end = 4;
  kvc_exported exported;
  kvc_exported_init(&exported);
  no("kvc_seq_export", [&](kvc_error *e) { return kvc_seq_export(cache, s.seq, &args, &exported, nullptr, e); });
  int64_t most = -1;
  EXPECT_EQ(kvc_seq_max_append(cache, 1, &s.seq, &most, nullptr), KVC_OK);
  EXPECT_EQ(most, 0);
  ASSERT_EQ(s.engine.resume(s.seq), KVC_OK);
  s.engine.check(s.seq, s.tokens, 18);
}

TEST(SuspendErrors, WrongCallsAreRefused) {
  TieredEngine without{TieredSpec{}};
  kvc_seq seq = without.add_sequence();
  kvc_job job = 0;
  for (auto *const call : {kvc_seq_suspend, kvc_seq_resume}) {
    const char *name = call == kvc_seq_suspend ? "kvc_seq_suspend" : "kvc_seq_resume";
    refused(without.cache(), {KVC_ERROR_UNSUPPORTED}, name,
            [&](kvc_error *e) { return call(without.cache(), seq, &job, e); });
  }
  Suspended s;
  for (auto *const call : {kvc_seq_suspend, kvc_seq_resume}) {
    const char *name = call == kvc_seq_suspend ? "kvc_seq_suspend" : "kvc_seq_resume";
    for (const kvc_seq bad : {kvc_seq{0}, kvc_seq{12345}, seq}) {
      refused(s.engine.cache(), {KVC_ERROR_STALE_ID}, name,
              [&](kvc_error *e) { return call(s.engine.cache(), bad, &job, e); });
    }
  }
  refused(s.engine.cache(), {KVC_ERROR_ORDER}, "kvc_seq_resume",
          [&](kvc_error *e) { return kvc_seq_resume(s.engine.cache(), s.seq, &job, e); });
  // In an open forward.
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &s.seq, batch.append_lengths = &one, batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(s.engine.cache(), &batch, nullptr, &f, nullptr), KVC_OK);
  for (auto *const call : {kvc_seq_suspend, kvc_seq_resume}) {
    refused(s.engine.cache(), {KVC_ERROR_BUSY}, call == kvc_seq_suspend ? "kvc_seq_suspend" : "kvc_seq_resume",
            [&](kvc_error *e) { return call(s.engine.cache(), s.seq, &job, e); });
  }
  ASSERT_EQ(kvc_forward_abort(s.engine.cache(), f, nullptr), KVC_OK);
  MemoryTier tier;
  TieredEngine readers{TieredSpec{}};
  ASSERT_EQ(readers.add(tier, KVC_TIER_STORE_NOTHING), KVC_OK);
  seq = readers.add_sequence();
  refused(readers.cache(), {KVC_ERROR_UNSUPPORTED}, "kvc_seq_suspend",
          [&](kvc_error *e) { return kvc_seq_suspend(readers.cache(), seq, &job, e); });
}

}  // namespace
}  // namespace kvt

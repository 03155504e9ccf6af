// Sequences that are attached to a load before it has ended.
#include "pending_fixture.h"

namespace kvt {
namespace {

std::vector<TieredSpec> specs() {
  TieredSpec one;
  one.layer_groups = {0, 0, 0};
  return {TieredSpec{}, one, two_groups(), full_window_states()};
}

void expect_info(PendingEngine &e, kvc_seq seq, const kvc_pending_info &expected) {
  const kvc_pending_info info = e.info(seq);
  EXPECT_EQ(info.ready_layers, expected.ready_layers);
  EXPECT_EQ(info.job, expected.job);
  EXPECT_EQ(info.tokens, expected.tokens);
  EXPECT_EQ(info.pages, expected.pages);
  EXPECT_EQ(info.pages_loaded, expected.pages_loaded);
  EXPECT_EQ(info.failed, expected.failed);
}

kvc_pending_info nothing_pending(const TieredSpec &spec) {
  kvc_pending_info info;
  kvc_pending_info_init(&info);
  info.ready_layers = static_cast<int32_t>(spec.num_layers());
  return info;
}

TEST(TiersPending, CallsReturnPendingUntilTheirLayerIsReady) {
  for (const TieredSpec &spec : specs()) {
    PendingEngine e(spec);
    e.hold();
    kvc_job job = 0;
    int64_t tokens = 0;
    const kvc_seq seq = e.attach_new(&job, &tokens);
    EXPECT_EQ(tokens, 32);
    EXPECT_EQ(e.length(seq), 32);
    const kvc_pending_info waiting = e.info(seq);
    EXPECT_EQ(waiting.job, job);
    EXPECT_EQ(waiting.tokens, 32);
    EXPECT_GE(waiting.pages, 8);
    EXPECT_EQ(waiting.pages_loaded, 0);
    EXPECT_EQ(waiting.ready_layers, 0);
    PendingStep step(e.engine, seq, e.prompt, 32, 33);
    ASSERT_EQ(step.begun, KVC_OK) << step.error.message;
    for (size_t l = 0; l < spec.num_layers(); l++) {
      EXPECT_EQ(step.run(l), KVC_ERROR_PENDING);
      EXPECT_EQ(step.error.index, static_cast<int64_t>(l));
      EXPECT_EQ(step.error.available, 0);
      EXPECT_GT(step.error.required, 0);
    }
    EXPECT_EQ(step.finish(), KVC_ERROR_PENDING);
    e.tier.release();
    ASSERT_TRUE(e.becomes([&] { return e.info(seq).ready_layers == static_cast<int32_t>(spec.num_layers()); }));
    EXPECT_EQ(step.run_all(), KVC_OK) << step.error.message;
    EXPECT_EQ(step.finish(), KVC_OK) << step.error.message;
    expect_info(e, seq, nothing_pending(spec));
    e.engine.check(seq, e.prompt, 33);
    EXPECT_EQ(e.engine.wait(job), 32);
    EXPECT_EQ(e.engine.serve(e.prompt).tokens, 32);
    e.engine.remove(seq);
  }
}

TEST(TiersPending, TheMessageNamesTheLayerAndTheJob) {
  PendingEngine e;
  e.hold(3);
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  ASSERT_TRUE(e.becomes([&] { return e.info(seq).pages_loaded == 3; }));
  PendingStep step(e.engine, seq, e.prompt, 32, 33);
  EXPECT_EQ(step.run(0), KVC_ERROR_PENDING);
  EXPECT_EQ(std::string(step.error.message),
            "kvc_forward_attend: layer 0 has 3 of the 8 pages that job " + std::to_string(job) + " loads");
  EXPECT_EQ(step.error.required, 8);
  EXPECT_EQ(step.error.available, 3);
  EXPECT_EQ(step.error.group, 0);
  EXPECT_EQ(step.abort(), KVC_OK);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  e.complete(seq);
}

// The pages of the group with the first layer come first, so its layers are ready while the others are not.
TEST(TiersPending, LayersOfEarlyGroupsAreReadyFirst) {
  PendingEngine e(two_groups(), 81);  // 20 pages of each group: more than are submitted at once
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  ASSERT_EQ(tokens, 80);
  // Up to 16 items were submitted in the order of the blocks. After them come the other 12 pages of group 0.
  e.tier.allow(28);
  ASSERT_TRUE(e.becomes([&] { return e.info(seq).ready_layers == 1; }));
  PendingStep step(e.engine, seq, e.prompt, 80, 81);
  EXPECT_EQ(step.run(0), KVC_OK) << step.error.message;
  EXPECT_EQ(step.run(1), KVC_ERROR_PENDING);
  EXPECT_EQ(step.run(2), KVC_ERROR_PENDING);
  EXPECT_EQ(step.run(3), KVC_OK) << step.error.message;
  EXPECT_EQ(step.finish(), KVC_ERROR_PENDING);
  EXPECT_EQ(step.error.index, 1);
  e.tier.release();
  ASSERT_TRUE(e.becomes([&] { return e.info(seq).ready_layers == 4; }));
  EXPECT_EQ(step.run(1), KVC_OK);
  EXPECT_EQ(step.run(2), KVC_OK);
  EXPECT_EQ(step.finish(), KVC_OK);
  EXPECT_EQ(e.engine.wait(job), 80);
  e.engine.check(seq, e.prompt, 81);
}

TEST(TiersPending, CallsWaitIfTheEngineAsksForIt) {
  for (const TieredSpec &spec : specs()) {
    PendingEngine e(spec);
    e.hold();
    kvc_job job = 0;
    int64_t tokens = 0;
    const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT);
    PendingStep step(e.engine, seq, e.prompt, 32, 33);
    ASSERT_EQ(step.begun, KVC_OK);
    std::thread releases([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      e.tier.release();
    });
    EXPECT_EQ(step.run_all(), KVC_OK) << step.error.message;
    EXPECT_EQ(step.finish(), KVC_OK);
    releases.join();
    e.engine.check(seq, e.prompt, 33);
    EXPECT_EQ(e.engine.wait(job), 32);
  }
}

TEST(TiersPending, EndWaitsToo) {
  PendingEngine e;
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT);
  std::thread releases([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    e.tier.release();
  });
  e.engine.compute(seq, e.prompt, 32, 33);  // appends and end only
  releases.join();
  e.engine.check(seq, e.prompt, 33);
  EXPECT_EQ(e.engine.wait(job), 32);
}

// A call that waits ends when the forward or the job is cancelled, or when the time is over.
TEST(TiersPending, WaitsEnd) {
  for (const int reason : {0, 1, 2}) {
    PendingEngine e;
    e.hold();
    kvc_job job = 0;
    int64_t tokens = 0;
    const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT, reason == 2 ? 30'000'000 : 0);
    PendingStep step(e.engine, seq, e.prompt, 32, 33);
    std::thread ends([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      if (reason == 0) {
        EXPECT_EQ(kvc_forward_cancel(e.engine.cache(), step.forward, nullptr), KVC_OK);
      }
      if (reason == 1) {
        EXPECT_EQ(kvc_job_cancel(e.engine.cache(), job, nullptr), KVC_OK);
      }
    });
    EXPECT_EQ(step.run(0), KVC_ERROR_CANCELLED);
    ends.join();
    EXPECT_NE(std::string(step.error.message).find(reason == 0 ? "forward" : "job"), std::string::npos);
    EXPECT_EQ(step.abort(), KVC_OK);
    e.tier.release();
    EXPECT_EQ(e.engine.wait(job), reason == 0 ? 32 : e.length(seq));
    if (reason != 0) {
      EXPECT_LE(e.length(seq), 32);
    }
    e.complete(seq);
  }
}

TEST(TiersPending, ALateLoadBecomesAShorterHit) {
  PendingEngine e(TieredSpec{}, 121);  // 30 pages, of which 16 are submitted at once
  e.hold(5);
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens, 0, 20'000'000);
  ASSERT_EQ(tokens, 120);
  ASSERT_TRUE(e.becomes([&] { return e.info(seq).failed == 1; }));
  kvc_forward f = 0;
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t one = 1;
  batch.sequences = &seq, batch.append_lengths = &one, batch.num_sequences = 1;
  EXPECT_EQ(kvc_forward_begin(e.engine.cache(), &batch, nullptr, &f, nullptr), KVC_ERROR_CANCELLED);
  e.tier.release();
  EXPECT_GE(e.engine.wait(job), 5 * 4);
  EXPECT_LE(e.length(seq), 21 * 4);
  EXPECT_GE(e.length(seq), 5 * 4);
  expect_info(e, seq, nothing_pending(e.engine.spec));
  e.complete(seq);
}

// A page is lost while a forward is open. Layers that are not ready fail, and the abort shortens the sequence.
TEST(TiersPending, ALostPageShortensTheSequence) {
  for (const TieredSpec &spec : specs()) {
    for (const bool polls_first : {false, true}) {
      for (const int64_t lost : {0, 3, 7, 11}) {
        PendingEngine e(spec);
        e.hold();
        e.tier.loads = 0;
        e.tier.fail_load = lost;
        kvc_job job = 0;
        int64_t tokens = 0, loaded = 0;
        const kvc_seq seq = e.attach_new(&job, &tokens);
        if (lost >= e.info(seq).pages) continue;
        PendingStep step(e.engine, seq, e.prompt, 32, 33);
        ASSERT_EQ(step.begun, KVC_OK);
        e.tier.release();
        ASSERT_TRUE(e.becomes([&] { return e.info(seq).failed == 1; }));
        EXPECT_EQ(step.run_all(), KVC_ERROR_IO);
        EXPECT_NE(std::string(step.error.message).find("have lost a page"), std::string::npos);
        EXPECT_EQ(step.finish(), KVC_ERROR_IO);
        if (polls_first) loaded = e.engine.wait(job);
        EXPECT_EQ(e.length(seq), 32);
        EXPECT_EQ(step.abort(), KVC_OK);
        if (!polls_first) loaded = e.engine.wait(job);
        EXPECT_LT(e.length(seq), 32);
        EXPECT_EQ(e.length(seq) % 4, 0);
        if (spec.groups.size() == 1) {
          EXPECT_EQ(e.length(seq), 4 * lost);
        }
        if (spec.groups.size() < 3) {
          EXPECT_EQ(loaded, e.length(seq));
        }
        expect_info(e, seq, nothing_pending(spec));
        e.engine.check(seq, e.prompt, e.length(seq));
        e.complete(seq);
        e.engine.remove(seq);
      }
    }
  }
}

// The tier returns other bytes: the object is refused, and nothing of it is copied.
TEST(TiersPending, ADamagedPageIsNeverSeen) {
  for (size_t object = 0; object < 8; object++) {
    PendingEngine e(two_groups());
    e.tier.flip(object, 300);
    kvc_job job = 0;
    int64_t tokens = 0;
    const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT);
    PendingStep step(e.engine, seq, e.prompt, 32, 33);
    const kvc_status status = step.begun == KVC_OK ? step.run_all() : step.begun;  // checks what is computed
    EXPECT_EQ(status, KVC_ERROR_IO);
    if (step.begun == KVC_OK) {
      EXPECT_EQ(step.abort(), KVC_OK);
    }
    e.engine.wait(job);
    EXPECT_LT(e.length(seq), 32);
    e.complete(seq);
  }
}

TEST(TiersPending, SequencesOfOneJobShareItsPages) {
  TieredSpec spec = two_groups();
  spec.pages = 12;  // 8 for the load, and a page for each sequence
  PendingEngine e(spec);
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  kvc_seq seqs[3] = {e.attach_new(&job, &tokens), 0, 0};
  for (int i = 1; i < 3; i++) ASSERT_EQ(e.attach(job, &seqs[i], &tokens), KVC_OK);
  int32_t pages[3][9];
  for (int i = 0; i < 3; i++) {
    int64_t count = 0;
    ASSERT_EQ(kvc_seq_pages(e.engine.cache(), seqs[i], 0, pages[i], 9, &count, nullptr), KVC_OK);
    EXPECT_EQ(count, 8);
    EXPECT_TRUE(std::equal(pages[i], pages[i] + 8, pages[0]));
  }
  e.engine.remove(seqs[1]);  // the others still wait, so the job goes on
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  e.complete(seqs[0]);
  e.complete(seqs[2]);
}

// Nothing that the pools evict belongs to a pending sequence, and its pages are not available.
TEST(TiersPending, FullPoolsTakeNothingFromIt) {
  TieredSpec spec;
  spec.pages = 12;
  PendingEngine e(spec);
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens), other = e.engine.add_sequence();
  PendingStep step(e.engine, seq, e.prompt, 32, 33);
  ASSERT_EQ(step.begun, KVC_OK);
  PendingStep large(e.engine, other, count_to(13, 900), 0, 13);
  EXPECT_EQ(large.begun, KVC_ERROR_OUT_OF_PAGES);
  e.engine.compute(other, count_to(12, 900), 0, 12);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 32);
  EXPECT_EQ(step.run(0), KVC_OK);
  EXPECT_EQ(step.finish(), KVC_OK);
  e.engine.check(seq, e.prompt, 33);
  e.engine.check(other, count_to(12, 900), 12);
}

TEST(TiersPending, RemovingTheLastSequenceCancelsTheJob) {
  PendingEngine e(TieredSpec{}, 121);
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  PendingStep step(e.engine, seq, e.prompt, 120, 121);
  e.engine.remove(seq);
  EXPECT_EQ(step.run(0), KVC_ERROR_CANCELLED);
  EXPECT_EQ(step.abort(), KVC_OK);
  e.tier.release();
  EXPECT_LT(e.engine.wait(job), 120);
  e.engine.forget_all();
  EXPECT_EQ(e.engine.available_pages(0), 40);
}

TEST(TiersPending, TheCacheIsDestroyedMeanwhile) {
  for (const bool open : {false, true}) {
    PendingEngine e(two_groups());
    e.hold(3);
    kvc_job job = 0;
    int64_t tokens = 0;
    const kvc_seq seq = e.attach_new(&job, &tokens);
    if (open) PendingStep step(e.engine, seq, e.prompt, 32, 33);
    e.tier.release();
  }
}

// The hit ends where the engine must compute: the last token, and whole pages.
TEST(TiersPending, LengthsAreWholePages) {
  PendingEngine e(TieredSpec{}, 32);
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT);
  EXPECT_EQ(tokens, 28);
  e.complete(seq);
  EXPECT_EQ(e.engine.wait(job), 32);
  // The pools have all but the last page, which only a query of more tokens needs.
  e.engine.remove(seq);
  EXPECT_EQ(e.engine.serve(e.prompt).tokens, 31);
}

// The job loads only the page of the last token, which the sequence leaves out.
TEST(TiersPending, NothingIsPendingIfThePoolsHaveTheLength) {
  PendingEngine e(TieredSpec{}, 32);
  e.engine.serve(Tokens(e.prompt.begin(), e.prompt.begin() + 28));
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens);
  EXPECT_EQ(tokens, 28);
  expect_info(e, seq, nothing_pending(e.engine.spec));
  kvc_seq child = 0;
  EXPECT_EQ(kvc_seq_fork(e.engine.cache(), 1, &seq, nullptr, &child, nullptr, nullptr), KVC_OK);
  e.complete(seq);
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 4);
}

TEST(TiersPending, APrefixOfThePoolsNeedsNoLayer) {
  PendingEngine e(TieredSpec{}, 65);
  const Tokens first(e.prompt.begin(), e.prompt.begin() + 32);
  e.engine.serve(first);
  e.hold();
  kvc_job job = 0;
  int64_t tokens = 0;
  const kvc_seq seq = e.attach_new(&job, &tokens, KVC_PENDING_WAIT);
  EXPECT_EQ(tokens, 64);
  EXPECT_EQ(e.info(seq).tokens, 32);
  EXPECT_EQ(e.info(seq).pages, 8);
  e.tier.fail_load = e.tier.loads + 2;
  e.tier.release();
  EXPECT_EQ(e.engine.wait(job), 8);
  EXPECT_EQ(e.length(seq), 40);
  e.complete(seq);
}

}  // namespace
}  // namespace kvt

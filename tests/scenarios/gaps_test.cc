// What others never tested, and got wrong: the list of scenarios.md as far as it applies to full and sliding groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "play.h"

namespace kvt {
namespace {

constexpr int64_t kEnd = Play::kEnd;

CacheSpec small_spec(int page_size, int64_t pages, int64_t window = 0, int64_t rollback = 0) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 16;
  spec.max_batch_tokens = 64;
  spec.rollback = rollback;
  spec.groups = {{0, pages}};
  spec.layers = {LayerSpec{0, 4, 2, 8}};
  if (window) {
    spec.groups.push_back({window, pages});
    spec.layers.push_back(LayerSpec{1, 3, 1, 8});
    spec.layers.push_back(LayerSpec{1, 2, 1, 6, 10, DType::kBF16, KVC_ROPE_ON_APPEND});
  }
  return spec;
}

testing::AssertionResult agrees(const char *, const std::string &mismatch) {
  if (mismatch.empty()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << mismatch;
}
#define EXPECT_PLAYS(...) EXPECT_PRED_FORMAT1(agrees, mismatch_of([&] __VA_ARGS__))

TEST(Gaps, PoolFullInTheMiddleOfABatch) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 6, 9), Options{});
      p.step({{0, 2 * page}, {1, page}, {2, page}});
      Harness &h = p.harness();
      int forward = -1;
      // Two pages free: the second and third rows do not fit with the first.
      const std::vector<Harness::Row> rows{{p.handle(0), page}, {p.handle(1), page}, {p.handle(2), page}};
      if (h.begin(rows, &forward) != KVC_ERROR_OUT_OF_PAGES) throw Mismatch("expected OUT_OF_PAGES");
      p.verify_all();
      p.step({{0, page}, {2, page}});
      p.verify_all();
    });
  }
}

TEST(Gaps, PageFailureAtEveryCount) {
  // A pool of exactly k pages, k = 1, 2, ...: the script stops at the first refusal, with everything as before it.
  for (int page : {1, 3, 16}) {
    bool finished = false;
    for (int64_t pages = 1; !finished && pages < 200; pages++) {
      EXPECT_PLAYS({
        CacheSpec spec = small_spec(page, pages, 7, 3);
        spec.groups[1].pages = 100;
        Options options;
        options.seed = static_cast<uint64_t>(pages);
        Harness h(spec, options);
        std::vector<int> s;
        h.add(4, &s);
        std::vector<int> children;
        finished = false;
        const std::vector<int64_t> positions{18, -1};
        kvc_status status = h.step({{s[0], 10}, {s[1], 20}});
        if (!status) status = h.fork({s[1], s[0]}, &positions, &children) == KVC_ERROR_EVICTED ? 1 : 0;
        if (!status && children.size() == 2) status = h.step({{children[0], 5}, {children[1], 9}, {s[1], 1}});
        if (!status) status = h.import(s[2], 12, true);
        if (!status) h.truncate({s[1]}, {h.length(s[1]) - 2});
        if (!status) status = h.step({{s[1], 30}, {s[2], 1}});
        h.check_all();
        finished = !status && children.size() == 2;
      });
    }
    EXPECT_TRUE(finished) << page;
  }
}

TEST(Gaps, DuplicateSequenceInABatch) {
  EXPECT_PLAYS({
    Play p(small_spec(16, 8, 5), Options{});
    p.step({{0, 5}, {1, 6}});
    int forward = -1;
    const std::vector<Harness::Row> rows{{p.handle(0), 1}, {p.handle(1), 1}, {p.handle(0), 2}};
    if (p.harness().begin(rows, &forward) != KVC_ERROR_DUPLICATE) throw Mismatch("expected DUPLICATE");
    p.verify_all();
  });
}

TEST(Gaps, ZeroLengthAndOverLimitChunk) {
  EXPECT_PLAYS({
    Play p(small_spec(16, 8, 5), Options{});
    p.step({{0, 5}, {1, 6}});
    Harness &h = p.harness();
    int forward = -1;
    if (h.begin({{p.handle(1), 1}, {p.handle(0), 0}}, &forward) != KVC_ERROR_INVALID_ARGUMENT) throw Mismatch("zero");
    if (h.begin({{p.handle(1), -1}}, &forward) != KVC_ERROR_INVALID_ARGUMENT) throw Mismatch("negative");
    if (h.begin({{p.handle(1), 65}}, &forward) != KVC_ERROR_BATCH_TOO_LARGE) throw Mismatch("over limit");
    if (h.begin({{p.handle(1), 32}, {p.handle(0), 33}}, &forward) != KVC_ERROR_BATCH_TOO_LARGE) throw Mismatch("sum");
    if (h.begin({{p.handle(1), INT32_MAX}, {p.handle(0), INT32_MAX}}, &forward) != KVC_ERROR_BATCH_TOO_LARGE) {
      throw Mismatch("overflow");
    }
    p.verify_all();
  });
}

TEST(Gaps, TruncateAndForkAfterAWindowSlid) {
  for (int page : {1, 3, 8, 16}) {
    for (int64_t rollback : {0, 4, 20}) {
      EXPECT_PLAYS({
        Play p(small_spec(page, 400 / page + 8, 10, rollback), Options{});
        p.step({{0, 60}});
        Harness &h = p.harness();
        const int s = p.handle(0);
        for (int64_t t = 0; t <= 60; t++) {
          h.check_nearest(s, t);
          std::vector<int> children;
          const std::vector<int64_t> at{t};
          const kvc_status status = h.fork({s}, &at, &children);
          if ((status == KVC_OK) != h.position_works(s, t)) throw Mismatch("fork after the window slid");
          if (t + rollback >= 60 && status) throw Mismatch("within the margin: must work");
          if (status) continue;
          h.step({{children[0], 3}});
          h.check_tables(children[0]);
          h.check_contents(children[0]);
          h.remove(children);
        }
        for (int64_t t = 59; t >= 0; t--) {
          const kvc_status status = h.truncate({s}, {t});
          if ((status == KVC_OK) != h.position_works(s, t)) throw Mismatch("truncate after the window slid");
          if (status) continue;
          h.step({{s, 1}});
          h.check_contents(s);
          h.check_tables(s);
          h.truncate({s}, {t});
        }
        if (h.length(s) != 0) throw Mismatch("0 always works");
        p.step({{0, 20}});
        p.verify_all();
      });
    }
  }
}

TEST(Gaps, WindowWithForkDepthThreeAndMore) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 400 / page + 20, 6, 2), Options{});
      p.step({{0, 21}});
      for (int depth = 1; depth <= 6; depth++) {
        p.fork({{depth, depth - 1, kEnd}});
        p.step({{depth, 5}, {depth - 1, 3}});
      }
      std::vector<int> all = p.sequences();
      for (int i = 0; i < 8; i++) p.decode(all);
      p.fork({{10, 6, p.harness().length(p.handle(6)) - 1}, {11, 3, kEnd}});
      p.step({{11, 9}, {10, 2}, {6, 1}});
      p.verify_all();
      for (int s : {3, 0, 11, 6, 1, 10, 2, 5, 4}) {
        p.remove(s);
        p.verify_all();
      }
      p.expect_empty();
    });
  }
}

TEST(Gaps, ChunkLongerThanTheWindow) {
  for (int page : {1, 3, 16, 64}) {
    for (int64_t window : {1, 2, 7, 16, 33}) {
      EXPECT_PLAYS({
        Play p(small_spec(page, 300 / page + 10, window), Options{});
        p.step({{0, 64}});
        p.step({{0, 63}, {1, 1}});
        p.step({{1, 50}, {0, 2}});
        p.verify_all();
      });
    }
  }
}

TEST(Gaps, FullTruncateToZeroThenAppend) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 200 / page + 10, 5, 3), Options{});
      p.step({{0, 40}});
      p.fork({{1, 0, kEnd}});
      p.drop({{0, 40}});
      p.step({{0, 17}, {1, 2}});
      p.drop({{0, 17}, {1, 42}});
      p.expect_empty();
      p.step({{1, 3}, {0, 30}});
      p.verify_all();
    });
  }
}

TEST(Gaps, GroupSizesFiveSixSevenAndHeadDims) {
  for (int ratio : {5, 6, 7}) {
    for (int d : {80, 96, 100, 256, 512}) {
      for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        CacheSpec spec;
        spec.max_sequences = 4;
        spec.max_batch_tokens = 128;
        spec.groups = {{0, 20}, {24, 20}};
        spec.layers = {LayerSpec{0, 2 * ratio, 2, d, 0, dtype},
                       LayerSpec{1, ratio, 1, d, 0, dtype, KVC_ROPE_ON_APPEND, d == 100 ? 60 : 0}};
        Options options;
        options.seed = static_cast<uint64_t>(ratio * 1000 + d);
        options.heads_checked = 4;
        options.rows_checked = 8;
        EXPECT_PLAYS({
          Play p(spec, options);
          p.step({{0, 70}, {1, 5}});
          p.decode({1, 0});
          p.step({{1, 17}, {0, 1}});
        }) << ratio << " " << d << " " << name_of(dtype);
      }
    }
  }
}

TEST(Gaps, OddHeadDims) {
  for (int d : {1, 2, 3, 7, 15, 17, 33, 65, 127, 511}) {
    CacheSpec spec;
    spec.max_sequences = 4;
    spec.max_batch_tokens = 128;
    spec.groups = {{0, 20}};
    spec.layers = {LayerSpec{0, 3, 1, d, 0, DType::kF32}, LayerSpec{0, 4, 2, d, d + 1, DType::kBF16},
                   LayerSpec{0, 2, 2, d, d > 1 ? d / 2 : 3, DType::kF16}};
    EXPECT_PLAYS({
      Play p(spec, Options{});
      p.step({{0, 50}, {1, 3}});
      p.decode({0, 1});
      p.step({{0, 1}, {1, 40}});
    }) << d;
  }
}

TEST(Gaps, DraftsRejectedRightAfterAWindowSlid) {
  for (int page : {1, 3, 4, 16}) {
    for (int64_t rollback : {4, 8}) {
      EXPECT_PLAYS({
        Play p(small_spec(page, 400 / page + 8, 6, rollback), Options{});
        p.step({{0, 11}});
        for (int round = 0; round < 40; round++) {
          const int accepted = round % 5;
          p.step({{0, 4}});            // a draft of four, whatever the window slid over
          p.drop({{0, 4 - accepted}});  // must always work
        }
        p.verify_all();
      });
    }
  }
}

TEST(Gaps, RandomBatchOrder) {
  EXPECT_PLAYS({
    Play p(small_spec(3, 300, 9, 2), Options{});
    std::mt19937_64 random(8);
    std::vector<int> order(12);
    std::iota(order.begin(), order.end(), 0);
    for (int round = 0; round < 20; round++) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Play::Append> batch;
      for (int s : order) batch.push_back({s, static_cast<int32_t>(random() % 4 == 0 ? 5 : 1)});
      p.step(batch);
      if (round % 6 == 5) {
        p.remove(order[0]);
        p.fork({{order[0], order[1], kEnd}});
      }
    }
    p.verify_all();
  });
}

TEST(Gaps, InertRowsAndTheirLse) {
  EXPECT_PLAYS({
    Play p(small_spec(16, 20, 9), Options{});
    p.step({{0, 20}, {1, 3}});
    Harness &h = p.harness();
    // The harness fills inert rows with NaN and compares out and lse byte by byte.
    for (int i = 0; i < 10; i++) {
      h.step({{Harness::kInert, 2}, {p.handle(0), 1}, {Harness::kInert, 0}, {p.handle(1), 3}, {Harness::kInert, 5}});
    }
    h.step({{Harness::kInert, 1}});
    h.step({{Harness::kInert, 0}, {Harness::kInert, 0}});
    h.step({});
    p.verify_all();
  });
}

TEST(Gaps, AbortedStepAndDoubleAbort) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 200 / page + 10, 6, 8), Options{});
      p.step({{0, 20}, {1, 30}});
      p.fork({{2, 1, kEnd}});
      p.drop({{2, 5}, {1, 3}});  // both end inside shared pages
      Harness &h = p.harness();
      for (int layers = 0; layers <= 3; layers++) {
        int forward = -1;
        const std::vector<int64_t> used{h.used(0), h.used(1)};
        h.begin({{p.handle(2), 9}, {p.handle(1), 11}, {p.handle(0), 40}}, &forward);
        const kvc_forward id = h.forward_id(forward);
        for (int l = 0; l < layers; l++) h.run_layer(forward, l);
        h.abort(forward);
        if (used != std::vector<int64_t>{h.used(0), h.used(1)}) throw Mismatch("model: abort");
        for (int again = 0; again < 2; again++) {
          if (kvc_forward_abort(h.cache(), id, nullptr) != KVC_ERROR_STALE_ID) throw Mismatch("double abort");
        }
        p.verify_all();
      }
      p.step({{2, 1}, {1, 1}, {0, 1}});
      p.verify_all();
    });
  }
}

// Two siblings that end inside one shared page append in one batch, or in two open forwards: neither may write into
// the page while an abort could still give it back.
TEST(Gaps, SiblingsTruncatedIntoOneSharedPage) {
  for (bool first_aborts : {false, true}) {
    for (bool second_aborts : {false, true}) {
      EXPECT_PLAYS({
        Play p(small_spec(16, 20, 40), Options{});
        p.step({{0, 31}});
        p.fork({{1, 0, kEnd}});
        p.step({{0, 1}});
        p.fork({{2, 0, kEnd}});
        p.drop({{0, 2}, {2, 9}});
        Harness &h = p.harness();
        int first = -1;
        int second = -1;
        h.begin({{p.handle(0), 3}}, &first);
        h.begin({{p.handle(2), 12}}, &second);
        h.run_layers(second);
        h.run_layers(first);
        first_aborts ? h.abort(first) : h.end(first);
        p.verify(0);
        second_aborts ? h.abort(second) : h.end(second);
        p.verify_all();
        // And in one batch.
        p.drop({{0, static_cast<int32_t>(h.length(p.handle(0)) - 20)}});
        p.fork({{3, 0, 16}, {4, 0, kEnd}});
        int both = -1;
        h.begin({{p.handle(2), 5}, {p.handle(0), 5}}, &both);
        h.run_layers(both);
        h.abort(both);
        p.verify_all();
        p.step({{0, 5}, {2, 5}, {4, 5}});
        p.verify_all();
      });
    }
  }
}

TEST(Gaps, RemoveWhileInUse) {
  for (bool abort : {false, true}) {
    EXPECT_PLAYS({
      Play p(small_spec(3, 60, 6), Options{});
      p.step({{0, 20}, {1, 13}});
      p.fork({{2, 0, kEnd}});
      Harness &h = p.harness();
      int forward = -1;
      const int s = p.handle(0);
      const kvc_seq id = h.id(s);
      h.begin({{s, 4}, {p.handle(1), 2}}, &forward);
      h.run_layer(forward, 1);
      h.remove({s});
      h.check_stale(id);  // gone for every later call
      if (kvc_seq_remove(h.cache(), 1, &id, nullptr) != KVC_ERROR_STALE_ID) throw Mismatch("removed twice");
      h.check_stats();  // its pages are still counted
      std::vector<int> fresh;
      h.add(1, &fresh);
      h.step({{fresh[0], 7}});  // takes pages, none of those in use
      h.run_layers(forward);    // goes on, and its results are right
      abort ? h.abort(forward) : h.end(forward);
      h.check_all();
      h.check_stale(id);
    });
  }
}

TEST(Gaps, DeepForkChain) {
  for (int page : {3, 16}) {
    EXPECT_PLAYS({
      CacheSpec spec = small_spec(page, 0, 0);
      spec.max_sequences = 1001;
      spec.groups = {{0, page == 3 ? 4000 : 3000}, {9, 4000}};
      spec.layers = {LayerSpec{0, 1, 1, 2}, LayerSpec{1, 1, 1, 2}};
      spec.rollback = 2;
      Options options;
      options.poison = false;
      Play p(spec, options);
      p.step({{0, 5}});
      for (int i = 1; i <= 1000; i++) {
        p.harness().check_invariants();
        const int child = p.harness().fork(p.handle(i - 1));
        p.harness().step({{child, 1 + i % 2}});
        p.harness().check_tables(child);
        if (i % 50 == 0) p.harness().check_contents(child);
        // Map the child as sequence i.
        p.adopt(i, child);
      }
      p.verify(1000);
      std::vector<int> order(1001);
      std::iota(order.begin(), order.end(), 0);
      std::mt19937_64 random(5);
      std::shuffle(order.begin(), order.end(), random);
      for (size_t i = 0; i < order.size(); i++) {
        p.remove(order[i]);
        if (i % 100 == 0) {
          const std::vector<int> left = p.sequences();
          if (!left.empty()) p.verify(left[left.size() / 2]);
        }
      }
      p.expect_empty();
    });
  }
}

// Slots that nothing was stored in keep the NaN they were filled with, and stored ones lost it.
TEST(Gaps, PoisonedSlotsStayPoisoned) {
  for (int page : {3, 16}) {
    EXPECT_PLAYS({
      const int64_t pages = 40;
      Play p(small_spec(page, pages, 5), Options{});
      p.step({{0, 20}, {1, 7}});
      p.step({{1, 1}, {0, 9}, {2, 2}});
      Harness &h = p.harness();
      for (size_t layer = 0; layer < h.spec().layers.size(); layer++) {
        const int group = h.spec().layers[layer].group;
        std::vector<std::vector<int>> stored(pages, std::vector<int>(page, 0));
        for (int s : p.sequences()) {
          int32_t ids[64];
          int64_t count = 0;
          const kvc_seq id = h.id(p.handle(s));
          if (kvc_seq_pages(h.cache(), id, group, ids, 64, &count, nullptr)) throw Mismatch("pages");
          for (int64_t t = 0; t < h.length(p.handle(s)); t++) {
            if (ids[t / page] >= 0) stored[ids[t / page]][t % page] = 1;
          }
        }
        for (int32_t pool : {KVC_POOL_K, KVC_POOL_V}) {
          DLManagedTensorVersioned *view = nullptr;
          if (kvc_cache_export_pool(h.cache(), static_cast<int32_t>(layer), pool, 0, &view, nullptr)) {
            throw Mismatch("export_pool");
          }
          Managed owner(view);
          if (!(view->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) throw Mismatch("view is not read-only");
          for (int64_t i = 0; i < pages; i++) {
            for (int64_t slot = 0; slot < page; slot++) {
              const bool nan = std::isnan(at(view->dl_tensor, {i, 0, slot, 0}));
              if (stored[i][slot] && nan) throw Mismatch("a stored slot is NaN");
              // A freed page of the sliding group keeps what it held; in the full group nothing was freed.
              if (group == 0 && !stored[i][slot] && !nan) throw Mismatch("an unused slot was written");
            }
          }
        }
      }
    });
  }
}

TEST(Gaps, StatesOfLargeLogits) {
  // Logits of +-1e4: finite, and the largest wins.
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    CacheSpec spec;
    spec.max_batch_tokens = 128;
    spec.groups = {{0, 32}};
    spec.layers = {LayerSpec{0, 2, 1, 16, 0, dtype, KVC_ROPE_NONE, 0, 0, 1.0}};
    ContextPtr context = make_context(2);
    CachePtr cache = make_cache(context.get(), spec);
    kvc_seq seq = 0;
    ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, nullptr), KVC_OK);
    const int32_t n = 100;
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &n;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, nullptr), KVC_OK);
    Tensor q(DType::kF32, {n, 2, 16}), k(DType::kF32, {n, 1, 16}), v(DType::kF32, {n, 1, 16}), out(DType::kF32, {n, 2, 16}),
        lse(DType::kF32, {n, 2});
    for (int t = 0; t < n; t++) {
      for (int i = 0; i < 16; i++) {
        k.set(t, 0, i, i ? 0.0f : t == 50 ? 128.0f : -128.0f);
        v.set(t, 0, i, i == t % 16 ? 1.0f : 0.0f);
        for (int h = 0; h < 2; h++) q.set(t, h, i, i ? 0.0f : h ? -80.0f : 80.0f);
      }
    }
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = q.dl();
    args.k = k.dl();
    args.v = v.dl();
    args.out = out.dl();
    args.lse = lse.dl();
    ASSERT_EQ(kvc_forward_attend(cache.get(), f, 0, &args, nullptr), KVC_OK);
    for (int t = 0; t < n; t++) {
      for (int h = 0; h < 2; h++) {
        double sum = 0;
        for (int i = 0; i < 16; i++) {
          ASSERT_TRUE(std::isfinite(out.at(t, h, i)));
          sum += out.at(t, h, i);
        }
        EXPECT_NEAR(sum, 1.0, 1e-5);
        ASSERT_TRUE(std::isfinite(lse.at(t, h)));
      }
      if (t >= 50) {
        EXPECT_EQ(out.at(t, 0, 50 % 16), 1.0f);
        EXPECT_NEAR(lse.at(t, 0), 10240.0f, 0.01f);
      }
      // A row whose keys all have the logit -10240 is their mean.
      if (t < 50) {
        EXPECT_NEAR(lse.at(t, 0), -10240.0 + std::log(t + 1.0), 0.01);
      }
    }
    ASSERT_EQ(kvc_forward_end(cache.get(), f, nullptr), KVC_OK);
  }
}

}  // namespace
}  // namespace kvt

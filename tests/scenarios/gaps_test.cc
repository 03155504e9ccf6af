// Gaps: combinations that other caches do not test and get wrong, for full and sliding groups.
#include "gaps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace kvt {
namespace {

TEST(Gaps, PoolFullInTheMiddleOfABatch) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 6, 9), Options{});
      p.step({{0, 2 * page}, {1, page}, {2, page}});
      Harness &h = p.harness();
      int forward = -1;
      // Two pages are free, so the second and third rows do not fit beside the first.
      const std::vector<Harness::Row> rows{{p.handle(0), page}, {p.handle(1), page}, {p.handle(2), page}};
      if (h.begin(rows, &forward) != KVC_ERROR_OUT_OF_PAGES) throw Mismatch("expected OUT_OF_PAGES");
      p.verify_all();
      p.step({{0, page}, {2, page}});
      p.verify_all();
    });
  }
}

TEST(Gaps, PageFailureAtEveryCount) {
  // Pools of exactly k pages, k = 1, 2, ...: the script stops at the first refusal, which changes nothing.
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
        p.fork_and_truncate_everywhere(0, [&](int64_t t) { return t + rollback >= 60; });
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
        }) << ratio
           << " " << d << " " << name_of(dtype);
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
          p.step({{0, 4}});             // a draft of four tokens, after any movement of the window
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

}  // namespace
}  // namespace kvt

// Scenario F, and gaps of streaming windows: sink tokens, a window, and a hole between them.
#include <gtest/gtest.h>

#include <algorithm>

#include "gaps.h"

namespace kvt {
namespace {

// Full layers with and without RoPE. Optionally also a sliding and a chunked group.
CacheSpec stream_spec(int page_size, int64_t pages, bool mixed = false, int64_t rollback = 0) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 16;
  spec.max_batch_tokens = 256;
  spec.rollback = rollback;
  spec.streaming = true;
  spec.groups = {{0, pages}};
  spec.layers = {LayerSpec{0, 4, 2, 8, 0, DType::kF32, KVC_ROPE_ON_APPEND},
                 LayerSpec{0, 2, 2, 6, 10, DType::kBF16, KVC_ROPE_ON_READ}, LayerSpec{0, 3, 1, 8, 0, DType::kF16}};
  if (!mixed) return spec;
  spec.groups.push_back({10, pages});
  spec.groups.push_back({0, pages, 12});
  spec.layers.push_back(LayerSpec{1, 4, 2, 8, 0, DType::kF32, KVC_ROPE_ON_APPEND});
  spec.layers.push_back(LayerSpec{2, 2, 1, 8});
  return spec;
}

struct StreamGeometry {
  int page_size, hq, hkv, d;
  DType dtype;
  int rope;
  bool mixed;
};

std::string name_of(const StreamGeometry &g) {
  const char *ropes[] = {"", "_rope", "_rope_on_read"};
  return "page" + std::to_string(g.page_size) + "_heads" + std::to_string(g.hq) + "x" + std::to_string(g.hkv) + "_d" +
         std::to_string(g.d) + "_" + name_of(g.dtype) + ropes[g.rope] + (g.mixed ? "_mixed" : "");
}

class Streaming : public testing::TestWithParam<StreamGeometry> {
 protected:
  CacheSpec spec() const {
    const StreamGeometry &g = GetParam();
    CacheSpec spec = stream_spec(g.page_size, 1200 / g.page_size + 40, g.mixed);
    for (LayerSpec &l : spec.layers) {
      const int group = l.group;
      l = LayerSpec{group, g.hq, g.hkv, g.d, 0, g.dtype, g.rope};
      if (g.dtype == DType::kE4M3) l.num_scales = g.hkv;
    }
    return spec;
  }
  Options options() const {
    Options options;
    options.seed = static_cast<uint64_t>(GetParam().page_size * 7 + GetParam().d + GetParam().rope);
    options.threads = 2;
    options.heads_checked = 2;
    return options;
  }
};

TEST_P(Streaming, F_Windows) {
  EXPECT_PLAYS({
    Play p(spec(), options());
    p.stream({{0, 6, 20}, {1, 4, 25}, {2, 8, 30}, {3, 3, 35}, {4, 7, 40}});
    p.step({{0, 4}});
    p.step({{1, 6}});
    p.step({{2, 6}, {3, 7}, {4, 7}});
    p.step({{0, 20}, {1, 19}, {2, 30}, {3, 35}, {4, 40}});
    p.step({{0, 6}, {1, 5}, {2, 4}, {3, 3}, {4, 2}});
    for (int i = 0; i < 20; i++) p.decode({0, 1, 2, 3, 4});
    p.verify_all();
    for (int s = 0; s < 5; s++) p.remove(s);
    p.expect_empty();
  });
}

// Chunks that are longer than the window, beside plain rows, in any order.
TEST_P(Streaming, LongChunksBesidePlainRows) {
  EXPECT_PLAYS({
    Play p(spec(), options());
    p.stream({{0, 6, 20}, {2, 0, 9}, {4, 17, 18}});
    p.step({{4, 70}, {1, 30}, {0, 75}, {3, 1}, {2, 60}});
    p.step({{3, 40}, {2, 1}, {0, 90}, {1, 2}, {4, 33}});
    for (int i = 0; i < 5; i++) p.decode({2, 4, 1, 0, 3});
    p.verify_all();
  });
}

std::vector<StreamGeometry> stream_geometries() {
  std::vector<StreamGeometry> all;
  for (int page : {1, 3, 8, 16, 64, 256}) all.push_back({page, 8, 2, 16, DType::kF32, KVC_ROPE_ON_APPEND, false});
  all.push_back({16, 32, 4, 64, DType::kF32, KVC_ROPE_NONE, false});
  all.push_back({16, 6, 1, 80, DType::kBF16, KVC_ROPE_ON_READ, false});
  all.push_back({3, 20, 4, 64, DType::kF16, KVC_ROPE_ON_APPEND, true});
  all.push_back({8, 8, 8, 128, DType::kBF16, KVC_ROPE_ON_APPEND, true});
  all.push_back({1, 4, 2, 64, DType::kI8, KVC_ROPE_ON_READ, true});
  all.push_back({4, 6, 2, 32, DType::kE4M3, KVC_ROPE_ON_APPEND, true});
  all.push_back({3, 6, 3, 256, DType::kF32, KVC_ROPE_ON_READ, true});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Streaming, testing::ValuesIn(stream_geometries()),
                         [](const testing::TestParamInfo<StreamGeometry> &info) { return name_of(info.param); });

// ---- Gaps ----------------------------------------------------------------------------------------

TEST(StreamingGaps, ChunkSizesOneTwoAndAllAtOnce) {
  for (int page : {1, 3, 16}) {
    for (int32_t chunk : {1, 2, 5, 90}) {
      EXPECT_PLAYS({
        Options options;
        options.seed = 3;
        Play p(stream_spec(page, 400 / page + 10), options);
        p.stream({{0, 5, 20}});
        for (int32_t at = 0; at < 90; at += chunk) p.step({{0, std::min(chunk, 90 - at)}});
        p.verify_all();
      });
    }
  }
}

TEST(StreamingGaps, ForkInsideTheSinkAfterSliding) {
  for (int page : {1, 3, 4, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 800 / page + 20), Options{});
      p.stream({{0, 9, 22}});
      p.step({{0, 60}});
      for (int i = 0; i < 30; i++) p.decode({0});
      for (int64_t position : {1, 4, 8, 9}) {
        p.fork({{1, 0, position}});
        if (p.harness().window(p.handle(1)) != 22) throw Mismatch("a fork has its parent's window");
        p.step({{1, 40}, {0, 2}});
        p.decode({1, 0});
        p.fork({{2, 1, 3}});  // in the sinks of the fork
        p.step({{2, 30}});
        p.remove(1);
        p.remove(2);
      }
      p.remove(0);
      p.expect_empty();
    });
  }
}

TEST(StreamingGaps, WindowNotAboveTheSinks) {
  EXPECT_PLAYS({
    Play p(stream_spec(4, 100), Options{});
    p.step({{0, 20}});
    Harness &h = p.harness();
    const int s = p.handle(0);
    for (int64_t window : {1, 5, 6}) {
      if (h.set_streaming({s}, {6}, {window}) != KVC_ERROR_INVALID_ARGUMENT) throw Mismatch("window <= sinks");
    }
    if (h.set_streaming({s}, {6}, {7})) throw Mismatch("window > sinks");
    p.step({{0, 5}});
    p.verify_all();
  });
}

// The sinks are a prefix that many sequences share. It is refused if it fills the window. Otherwise all sequences keep
// it, while the window of each moves by itself.
TEST(StreamingGaps, ASharedPrefixAsSinks) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 900 / page + 30), Options{});
      p.step({{0, 48}});
      p.fork({{1, 0, kEnd}, {2, 0, kEnd}, {3, 0, 40}});
      Harness &h = p.harness();
      for (int64_t window : {20, 48}) {
        if (h.set_streaming({p.handle(1)}, {4}, {window}, true) != KVC_ERROR_INVALID_ARGUMENT) {
          throw Mismatch("a prefix longer than the window");
        }
      }
      p.stream({{1, 4, 60}, {3, 4, 60}}, true);
      p.stream({{2, 50, 60}}, true);
      if (h.sinks(p.handle(1)) != 48 || h.sinks(p.handle(3)) != 40 || h.sinks(p.handle(2)) != 50) {
        throw Mismatch("the prefix is not the sinks");
      }
      for (int i = 0; i < 3; i++) p.step({{1, 20}, {0, 1}, {2, 25}, {3, 18}});
      for (int i = 0; i < 20; i++) p.decode({3, 2, 1, 0});
      p.fork({{4, 1, 48}, {5, 1, kEnd}});
      p.step({{4, 20}, {5, 20}, {1, 1}});
      p.verify_all();
    });
  }
}

TEST(StreamingGaps, WindowsWithForkDepthThreeAndMore) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 900 / page + 40, true, 4), Options{});
      p.stream({{0, 5, 24}});
      p.step({{0, 31}});
      for (int depth = 1; depth <= 6; depth++) {
        p.fork({{depth, depth - 1, kEnd}});
        p.step({{depth, 5 + depth}, {depth - 1, 3}});
        if (depth == 3) p.stream({{depth, 2, 12}});
      }
      p.decode({6, 5, 4, 3, 2, 1, 0});
      for (int depth : {0, 3, 6, 1, 5, 2, 4}) p.remove(depth);
      p.expect_empty();
    });
  }
}

// Every position, after every kind of movement: library and model agree which positions work, and these do work.
TEST(StreamingGaps, TruncateAndForkAfterAStreamSlid) {
  for (int page : {1, 3, 8, 16}) {
    for (int64_t rollback : {0, 4, 20}) {
      EXPECT_PLAYS({
        Play p(stream_spec(page, 500 / page + 12, false, rollback), Options{});
        p.stream({{0, 7, 18}});
        p.step({{0, 70}});
        p.fork_and_truncate_everywhere(0, [&](int64_t t) { return t <= 7 || t + rollback >= 70; });
        p.step({{0, 40}});
        p.verify_all();
      });
    }
  }
}

// Drafts that are rejected just after the windows moved, as chains by truncate and as trees by commit, in a cache with
// full, sliding and chunked groups. Nothing must be computed again.
TEST(StreamingGaps, DraftsRejectedRightAfterAWindowSlid) {
  for (int page : {1, 3, 4, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 900 / page + 40, true, 8), Options{});
      p.stream({{0, 6, 19}, {1, 0, 11}});
      p.step({{0, 17}, {1, 9}, {2, 17}});
      for (int round = 0; round < 24; round++) {
        p.step({{0, 8}, {1, 8}, {2, 8}});
        p.drop({{0, 8 - round % 3}, {1, 7}, {2, 8 - round % 8}});
        p.grow({{0, {-1, 0, 1, 2, 0, 4}}, {2, {-1, 0, 1}}, {1, {}, 1}});
        p.commit({{0, round % 7 - 1}, {2, round % 4 - 1}});
      }
      p.decode({2, 1, 0});
      p.verify_all();
    });
  }
}

// Trees that begin in an empty sequence: nodes are sinks, nodes see keys on both sides of the sinks' end, and windows
// reach before the tree.
TEST(StreamingGaps, TreesInSinksAndAcrossTheirEdge) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 600 / page + 40, true, 16), Options{});
      p.stream({{0, 6, 9}, {1, 3, 14}});
      const std::vector<int32_t> bush{-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6};
      for (int round = 0; round < 12; round++) {
        p.grow({{0, bush}, {2, {}, 2}, {1, {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8}}});
        p.grow({{1, {9, 10, -1}}, {0, {14, 7, 15}}});
        p.commit({{1, round % 13}, {0, round + 5}});
      }
      p.decode({2, 1, 0});
      p.verify_all();
    });
  }
}

// A window may shrink at any time. It may grow or be removed if all tokens that it then needs are still there.
TEST(StreamingGaps, ChangedAndTurnedOff) {
  for (int page : {1, 4, 16}) {
    EXPECT_PLAYS({
      Play p(stream_spec(page, 900 / page + 20), Options{});
      p.step({{0, 100}});
      Harness &h = p.harness();
      p.stream({{0, 4, 60}});
      p.step({{0, 5}});
      p.stream({{0, 2, 30}});
      p.step({{0, 5}});
      if (h.set_streaming({p.handle(0)}, {2}, {80}) != KVC_ERROR_EVICTED) throw Mismatch("a window over the hole");
      if (h.set_streaming({p.handle(0)}, {0}, {0}) != KVC_ERROR_EVICTED) throw Mismatch("off over the hole");
      p.step({{0, 9}});
      h.truncate({p.handle(0)}, {2});
      p.stream({{0, 0, 0}});
      p.step({{0, 90}});
      p.verify_all();
    });
  }
}

// Pools of k pages, k = 1, 2, ...: windows, a fork, a tree, its commit and a longer chunk over full, sliding and
// chunked groups, until the first call that finds no page. Library and model agree on what is missing, and nothing
// changes.
TEST(StreamingGaps, PageFailureAtEveryCount) {
  for (int page : {1, 3, 16}) {
    bool finished = false;
    int refusals = 0;
    for (int64_t pages = 1; !finished && pages < 300; pages++) {
      EXPECT_PLAYS({
        Options options;
        options.seed = static_cast<uint64_t>(pages);
        Harness h(stream_spec(page, pages, true, 4), options);
        std::vector<int> s;
        std::vector<int> forks;
        h.add(2, &s);
        if (h.set_streaming({s[0]}, {5}, {17})) throw Mismatch("a window was refused");
        kvc_status status = h.step({{s[0], 23}, {s[1], 9}});
        if (!status) status = h.fork({s[0], s[1]}, nullptr, &forks);
        const std::vector<int32_t> bush{-1, 0, 0, 1, 1, 2, -1};
        if (!status) status = h.step({{s[0], 7, 0, bush}, {forks[1], 4}, {forks[0], 7, 0, bush}});
        if (!status) status = h.commit({s[0], forks[0]}, {4, -1});
        if (!status) h.truncate({s[1]}, {7});
        if (!status) status = h.step({{s[1], 3}, {s[0], 30}, {forks[0], 1}});
        h.check_all();
        refusals += status == KVC_ERROR_OUT_OF_PAGES;
        finished = !status;
      });
    }
    EXPECT_TRUE(finished) << page;
    EXPECT_GT(refusals, page == 16 ? 4 : 20) << page;
  }
}

// An endless sequence needs only the pages of its window.
TEST(StreamingGaps, MemoryStaysBounded) {
  for (int page : {1, 16}) {
    EXPECT_PLAYS({
      const int64_t most = 4 / page + 1 + (64 + 8 + page - 1) / page + 1;
      CacheSpec spec = stream_spec(page, 2 * most, false, 8);
      spec.layers = {LayerSpec{0, 2, 1, 4, 0, DType::kF32, KVC_ROPE_ON_APPEND}};
      Options options;
      options.attend_checks = 0.01;
      options.check_contents = false;
      Harness h(spec, options);
      const int a = h.add();
      const int b = h.add();
      if (h.set_streaming({a, b}, {4, 4}, {68, 68})) throw Mismatch("a window was refused");
      for (int i = 0; i < 6000; i++) {
        if (h.step({{a, 1}, {b, 1}})) throw Mismatch("a decode step was refused");
        if (h.used(0) > 2 * most) throw Mismatch("more pages than the window needs");
      }
      if (h.length(a) != 6000) throw Mismatch("the length counts every token");
      h.check_all();
    });
  }
}

}  // namespace
}  // namespace kvt

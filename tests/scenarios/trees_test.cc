// Scenario H, and gaps of token trees: attention of every node, and K and V that a commit keeps.
#include <gtest/gtest.h>

#include "gaps.h"

namespace kvt {
namespace {

using Parents = std::vector<int32_t>;

// `count` nodes of a binary tree in level order. The first one is node `first`, and a root's parent is -1.
Parents binary(int count, int first = 0) {
  Parents parents;
  for (int i = first; i < first + count; i++) parents.push_back(i == 0 ? KVC_TREE_ROOT : (i - 1) / 2);
  return parents;
}

Parents chain(int count, int first = 0) {
  Parents parents;
  for (int i = first; i < first + count; i++) parents.push_back(i - 1);
  return parents;
}

// Two binary trees of `count` nodes, one after another.
Parents twins(int count) {
  Parents parents = binary(count);
  for (int i = 0; i < count; i++) parents.push_back(i == 0 ? KVC_TREE_ROOT : count + (i - 1) / 2);
  return parents;
}

struct TreeGeometry {
  int page_size;
  int64_t window;  // 0: no sliding layers
  DType dtype;
  int rope;
  int64_t chunk = 0;    // 0: no chunked layers
  bool latent = false;  // MLA layers too
};

std::string name_of(const TreeGeometry &g) {
  return "page" + std::to_string(g.page_size) + "_window" + std::to_string(g.window) + "_" + name_of(g.dtype) +
         (g.rope ? g.rope == KVC_ROPE_ON_READ ? "_rope_on_read" : "_rope" : "") +
         (g.chunk ? "_chunk" + std::to_string(g.chunk) : "") + (g.latent ? "_latent" : "");
}

class Trees : public testing::TestWithParam<TreeGeometry> {
 protected:
  static CacheSpec spec() {
    const TreeGeometry &g = GetParam();
    CacheSpec spec;
    spec.page_size = g.page_size;
    spec.max_sequences = 32;
    spec.max_batch_tokens = 512;
    spec.rollback = 16;
    const int64_t pages = 2048 / g.page_size + 32;
    spec.groups = {{0, pages}};
    if (g.window) spec.groups.push_back({g.window, pages});
    if (g.chunk) spec.groups.push_back({0, pages, g.chunk});
    if (g.latent) spec.groups.push_back({0, pages});
    const int groups = static_cast<int>(spec.groups.size());
    spec.layers.clear();
    for (int i = 0; i < 4; i++) {
      LayerSpec l;
      l.group = i % groups;
      l.hq = 32;
      l.hkv = 4;
      l.d = 64;
      l.dtype = g.dtype;
      l.rope = g.rope;
      if (g.latent && l.group == groups - 1) l.hkv = 1, l.d = 576, l.latent = 512, l.scale = 0.13523;
      spec.layers.push_back(l);
    }
    return spec;
  }
  template <class Script>
  void play(Script &&script) {
    Options options;
    options.seed = 7000 + static_cast<uint64_t>(GetParam().page_size);
    options.threads = 2;
    options.heads_checked = 3;
    EXPECT_EQ(mismatch_of([&] {
                Play p(spec(), options);
                script(p);
                p.verify_all();
              }),
              "");
  }
};

TEST_P(Trees, H_FourTreesAreCommittedAndDecoded) {
  play([](Play &p) {
    p.step({{0, 10}, {1, 20}, {2, 30}, {3, 40}});
    p.grow({{0, binary(7)}, {1, binary(15)}, {2, chain(10)}, {3, twins(7)}});
    p.commit({{0, 6}, {1, 11}, {2, 6}, {3, 13}});
    const int64_t lengths[4] = {10 + 3, 20 + 4, 30 + 7, 40 + 3};
    for (int s = 0; s < 4; s++) {
      if (p.harness().length(p.handle(s)) != lengths[s]) throw Mismatch("scenario: length after the commit");
    }
    for (int i = 0; i < 5; i++) p.decode({0, 1, 2, 3});
  });
}

TEST_P(Trees, H_StackedRoundsAreCommittedOnlyAtTheEnd) {
  play([](Play &p) {
    p.step({{0, 10}, {1, 20}, {2, 30}, {3, 40}});
    for (int round = 0, first = 0; round < 5; round++) {
      const int count = 1 << round;
      p.grow(
          {{3, binary(count, first)}, {0, binary(count, first)}, {2, binary(count, first)}, {1, binary(count, first)}});
      first += count;
    }
    p.commit({{0, 30}, {1, 15}, {2, 4}, {3, -1}});  // a leaf on the right, one on the left, an inner node, none
    for (int i = 0; i < 5; i++) p.decode({0, 1, 2, 3});
  });
}

TEST_P(Trees, H_AllChains) {
  play([](Play &p) {
    p.step({{0, 10}, {1, 20}, {2, 30}, {3, 40}});
    for (int round = 0; round < 3; round++) {
      p.grow({{0, chain(4)}, {1, chain(9)}, {2, chain(1)}, {3, chain(16)}});
      p.commit({{0, 3}, {1, 4}, {2, 0}, {3, -1}});
    }
    p.decode({0, 1, 2, 3});
  });
}

TEST_P(Trees, H_ASubsetIsCommittedInAnotherOrder) {
  play([](Play &p) {
    p.step({{0, 10}, {1, 20}, {2, 30}, {3, 40}});
    p.grow({{0, binary(7)}, {1, binary(15)}, {2, chain(10)}, {3, twins(7)}});
    p.commit({{3, 9}, {1, 14}});
    p.grow({{1, chain(2)}, {0, binary(8, 7)}});  // a first round beside a second one
    p.decode({3});
    p.commit({{2, 0}, {0, 13}, {1, 1}});
    p.decode({3, 2, 1, 0});
  });
}

std::vector<TreeGeometry> tree_geometries() {
  std::vector<TreeGeometry> all;
  for (int page : {1, 3, 8, 16, 64, 256}) all.push_back({page, 0, DType::kF32, KVC_ROPE_NONE});
  for (int64_t window : {1, 3, 12, 33}) all.push_back({16, window, DType::kF32, KVC_ROPE_ON_APPEND});
  all.push_back({3, 5, DType::kBF16, KVC_ROPE_ON_APPEND});
  all.push_back({1, 12, DType::kF16, KVC_ROPE_NONE});
  all.push_back({16, 0, DType::kF32, KVC_ROPE_ON_READ, 24});
  all.push_back({64, 0, DType::kBF16, KVC_ROPE_ON_READ, 0, true});
  all.push_back({3, 9, DType::kF16, KVC_ROPE_ON_APPEND, 7, true});
  all.push_back({8, 12, DType::kI8, KVC_ROPE_ON_READ, 13, true});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Trees, testing::ValuesIn(tree_geometries()),
                         [](const testing::TestParamInfo<TreeGeometry> &info) { return name_of(info.param); });

TEST(Gaps, TreesAtMixedDepthsNextToRowsWithoutOne) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 700 / page + 20, 5, 4), Options{});
      p.step({{0, 1}, {1, 17}, {2, 40}});
      p.step({{2, 60}, {3, 4}});
      p.grow({{4, twins(3)}, {0, {}, 1}, {1, binary(5)}, {3, {}, 9}, {2, {-1, -1, 0, 0, 3, 1, -1}}, {5, {}, 2}});
      p.grow({{5, {}, 1}, {2, {4, 4, 6, 9}}, {4, chain(1)}, {0, {}, 12}, {3, binary(3)}});
      p.commit({{1, 4}, {4, 5}, {2, 10}, {3, 0}});
      p.decode({5, 4, 3, 2, 1, 0});
      p.verify_all();
    });
  }
}

// One commit rejects some trees and accepts others. A sequence must not follow the leaf of another one.
TEST(Gaps, CommitIsDecidedForEachSequence) {
  EXPECT_PLAYS({
    Play p(small_spec(4, 100, 6, 4), Options{});
    p.step({{0, 9}, {1, 9}, {2, 9}});
    p.grow({{0, binary(7)}, {1, binary(7)}, {2, binary(7)}});
    p.commit({{2, 3}, {0, -1}, {1, 6}});
    Harness &h = p.harness();
    if (h.length(p.handle(0)) != 9 || h.length(p.handle(1)) != 12 || h.length(p.handle(2)) != 12) {
      throw Mismatch("lengths");
    }
    p.decode({0, 1, 2});
    p.verify_all();
  });
}

// The path of a tree of several rounds has rows of every round, in different pages.
TEST(Gaps, CompactionTakesRowsOfEveryRound) {
  for (int page : {1, 2, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 200 / page + 20, 6, 4), Options{});
      p.step({{0, 11}});
      p.grow({{0, {-1, -1, -1}}});
      p.grow({{0, {2, 2, 1}}});
      p.grow({{0, {4, 4, 5, 0}}});
      p.grow({{0, {7, 7}}});
      p.commit({{0, 11}});  // 2, 4, 7, 11
      if (p.harness().length(p.handle(0)) != 15) throw Mismatch("length");
      p.decode({0});
      p.verify_all();
    });
  }
}

// The window moved with the commit before. Then a tree is rejected whole, and a chain by truncate. Nothing is computed
// again, and the window of the next query is complete.
TEST(Gaps, ATreeRejectedRightAfterAWindowSlid) {
  for (int page : {1, 3, 4, 16}) {
    for (int64_t window : {1, 4, 7, 20}) {
      for (int64_t rollback : {0, 3, 8}) {
        EXPECT_PLAYS({
          Play p(small_spec(page, 500 / page + 20, window, rollback), Options{});
          p.step({{0, 30}, {1, 2 * page}});
          for (int round = 0; round < 4; round++) {
            p.grow({{0, binary(15)}, {1, chain(9)}});
            p.commit({{0, 14}, {1, 8}});  // the window moves
            p.grow({{1, twins(7)}, {0, chain(30)}});
            p.commit({{0, -1}, {1, -1}});
            p.decode({0, 1});
          }
          if (rollback >= 3) p.drop({{0, 3}});
          p.decode({0, 1});
          p.verify_all();
        });
      }
    }
  }
}

// Windows shorter than a branch, as long as it, and longer. So a node sees a part of its branch, or committed tokens
// too.
TEST(Gaps, ATreeNodeWhoseWindowReachesPastItsTree) {
  for (int64_t window : {1, 2, 5, 6, 7, 11, 40}) {
    EXPECT_PLAYS({
      Play p(small_spec(4, 60, window, 8), Options{});
      p.step({{0, 21}, {1, 3}});
      Parents two_branches = chain(6);  // 0..5
      two_branches.push_back(-1);       // 6..11 beside it
      for (int i = 7; i < 12; i++) two_branches.push_back(i - 1);
      p.grow({{0, two_branches}, {1, two_branches}});
      p.grow({{0, {11, 5, 12, 13, 14}}, {1, {0, 5}}});
      p.commit({{0, 16}, {1, 13}});
      p.decode({0, 1});
      p.verify_all();
    });
  }
}

TEST(Gaps, ForksBeforeTheTreeShareTheirPrefix) {
  for (int page : {1, 4, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 300 / page + 20, 9, 4), Options{});
      p.step({{0, 37}});
      p.fork({{1, 0, kEnd}, {2, 0, 33}, {3, 0, kEnd}});
      p.fork({{4, 1, kEnd}});
      p.drop({{4, 2}, {3, 1}});
      const int64_t used = p.harness().used(0);
      p.grow({{0, binary(7)}, {1, binary(7)}, {2, twins(3)}, {3, {}, 1}, {4, chain(3)}});
      p.commit({{4, -1}, {1, 5}, {0, 6}, {2, -1}});
      if (page == 1 && p.harness().used(0) != used + 3 + 3 + 1) throw Mismatch("pages of dropped nodes");
      p.fork({{5, 1, kEnd}});
      p.decode({0, 1, 2, 3, 4, 5});
      p.verify_all();
    });
  }
}

// The largest number of nodes, in one step and in rounds, over a long sequence.
TEST(Gaps, TheLargestTrees) {
  EXPECT_PLAYS({
    CacheSpec spec = small_spec(16, 400, 100, 1);
    spec.max_tree_nodes = 1024;
    spec.max_batch_tokens = 2100;
    Options options;
    options.threads = 2;
    options.rows_checked = 40;
    Play p(spec, options);
    p.step({{0, 1500}, {1, 5}});
    p.grow({{0, binary(1024)}, {1, Parents(500, KVC_TREE_ROOT)}});
    p.grow({{1, chain(524, 500)}});
    if (p.harness().begin({{p.handle(1), 1, 0, {3}}}, nullptr) != KVC_ERROR_TREE_TOO_LARGE) throw Mismatch("1,025");
    p.commit({{1, 1023}, {0, 1000}});
    p.decode({0, 1});
    p.verify_all();
  });
}

// Nodes need pages as tokens do. If there are too few, nothing changes. Commits and rejections need none.
TEST(Gaps, NoPagesForATree) {
  EXPECT_PLAYS({
    Play p(small_spec(4, 10, 5, 2), Options{});
    p.step({{0, 15}, {1, 9}});  // 4 + 3 of 10 pages
    Harness &h = p.harness();
    int forward = -1;
    if (h.begin({{p.handle(0), 14, 0, chain(14)}}, &forward) != KVC_ERROR_OUT_OF_PAGES) throw Mismatch("4 pages");
    if (h.can_fit({{p.handle(0), 9, 0, binary(9)}, {p.handle(1), 3, 0, chain(3)}})) throw Mismatch("2 pages");
    p.grow({{0, binary(9)}, {1, binary(7)}});
    if (h.free_pages(0) != 0) throw Mismatch("all pages are used");
    p.commit({{0, 8}, {1, -1}});
    if (h.free_pages(0) != 2) throw Mismatch("pages come back");
    p.verify_all();
  });
}

TEST(Gaps, AnAbortedRoundLeavesTheEarlierRounds) {
  for (int page : {1, 3, 16}) {
    EXPECT_PLAYS({
      Play p(small_spec(page, 200 / page + 20, 6, 2), Options{});
      p.step({{0, 13}, {1, 8}});
      p.grow({{0, binary(7)}});
      Harness &h = p.harness();
      const uint64_t before = h.digest();
      int forward = -1;
      h.begin({{p.handle(0), 20, 0, chain(20, 7)}, {p.handle(1), 3, 0, chain(3)}}, &forward);
      h.run_layers(forward);
      h.abort(forward);
      if (h.digest() != before) throw Mismatch("an aborted round left a trace");
      p.grow({{0, {3, 6, 6, 8}}});
      p.commit({{0, 10}});
      p.decode({0, 1});
      p.verify_all();
    });
  }
}

}  // namespace
}  // namespace kvt

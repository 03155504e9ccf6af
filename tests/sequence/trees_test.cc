// Trees of sequences: uncommitted nodes of steps, the copies of a commit, and the result.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "store_fixture.h"

namespace kvc {
namespace {

using Ints = std::vector<int32_t>;

SequenceStoreConfig tree_config(int64_t page_size, int64_t pages, int64_t window = 0, int64_t rollback = 0) {
  SequenceStoreConfig config = config_of(page_size, pages, window, pages, rollback);
  config.max_tree_nodes = 32;
  return config;
}

// What a cache would store: one number in every slot of every group.
struct Trees : Fixture {
  explicit Trees(const SequenceStoreConfig& config) : Fixture(config) {
    for (const auto& group : config.groups) memory.emplace_back(group.num_pages * group.rules.page_size, -1);
  }

  int64_t& at(uint64_t id, int32_t group, int64_t index) {
    const int32_t slot = store.slot_of(id);
    const int64_t page_size = store.rules(group).page_size;
    const int64_t page = store.table(group).at(store.list(slot, group), index / page_size);
    EXPECT_GE(page, 0) << index;
    return memory[static_cast<size_t>(group)][static_cast<size_t>(page * page_size + index % page_size)];
  }
  void copy(const std::vector<SlotCopy>& copies) {
    for (const SlotCopy& c : copies) {
      auto& slots = memory[static_cast<size_t>(c.group)];
      for (int32_t i = 0; i < c.tokens; ++i)
        slots[static_cast<size_t>(c.target + i)] = slots[static_cast<size_t>(c.source + i)];
    }
  }
  // A step of one row. Every new token is stored as `value` + its index in the row. parents empty: a plain row.
  void step(uint64_t id, int32_t length, const Ints& parents, int64_t value) {
    Step step;
    const Status begun = parents.empty() ? begin({id}, {length}, &step) : begin({id}, {length}, parents, &step);
    ASSERT_TRUE(begun.ok()) << begun.message();
    copy(step.copies);
    const int64_t first = store.stored(store.slot_of(id));
    for (int32_t g = 0; g < store.num_groups(); ++g) {
      for (int32_t i = 0; i < length; ++i) at(id, g, first + i) = value + i;
    }
    ASSERT_TRUE(commit(step).ok());
  }
  Status keep(const Ids& ids, const Ints& leaves, std::vector<SlotCopy>* copies) {
    KVC_TRY(store.plan_commit(ids, leaves, copies));
    copy(*copies);
    store.finish_commit(ids, leaves);
    return store.check_invariants({});
  }
  Status keep(const Ids& ids, const Ints& leaves) {
    std::vector<SlotCopy> copies;
    return keep(ids, leaves, &copies);
  }
  using Fixture::commit;
  int64_t length(uint64_t id) { return store.length(store.slot_of(id)); }
  int32_t nodes(uint64_t id) { return store.nodes(store.slot_of(id)); }
  std::vector<int64_t> contents(uint64_t id, int32_t group, int64_t begin = 0) {
    std::vector<int64_t> values;
    for (int64_t i = begin; i < length(id); ++i) values.push_back(at(id, group, i));
    return values;
  }

  std::vector<std::vector<int64_t>> memory;
};

TEST(Trees, NodesAreKeptUncommitted) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 6, {}, 100);
  f.step(ids[0], 5, {-1, 0, 0, 1, -1}, 200);
  EXPECT_EQ(f.length(ids[0]), 6);
  EXPECT_EQ(f.nodes(ids[0]), 5);
  EXPECT_EQ(f.pages(ids[0]).size(), 3u);
  EXPECT_EQ(f.store.count(0).tokens_held, 6);
  EXPECT_EQ(f.store.count(0).pages_used, 3);
  EXPECT_EQ(f.store.max_append(f.store.slot_of(ids[0]), 100), 32 - 5);
}

TEST(Trees, CommitMovesThePathAndDropsTheRest) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 6, {}, 100);
  f.step(ids[0], 7, {-1, 0, 0, 1, 1, 2, 2}, 200);
  std::vector<SlotCopy> copies;
  ASSERT_TRUE(f.keep(ids, {6}, &copies).ok());  // 0, 2, 6: node 0 stays, two others move to 7 and 8
  EXPECT_EQ(f.length(ids[0]), 9);
  EXPECT_EQ(f.nodes(ids[0]), 0);
  EXPECT_EQ(f.contents(ids[0], 0), (std::vector<int64_t>{100, 101, 102, 103, 104, 105, 200, 202, 206}));
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].source, 2 * 4 + 0);  // index 8 is in the third page
  EXPECT_EQ(copies[0].target, 1 * 4 + 3);
  EXPECT_EQ(copies[1].source, 3 * 4 + 0);
  EXPECT_EQ(copies[1].target, 2 * 4 + 0);
  EXPECT_EQ(f.pages(ids[0]), (Ints{0, 1, 2}));
}

TEST(Trees, NeighboursMoveTogetherUntilAPageEnds) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 1, {}, 100);
  f.step(ids[0], 9, {-1, -1, 1, 2, 3, 4, 5, 6, 7}, 200);  // a root, and a chain of eight beside it
  std::vector<SlotCopy> copies;
  ASSERT_TRUE(f.keep(ids, {8}, &copies).ok());
  // Indices 2..9 to 1..8: cut where the source enters a page (4, 8) and where the target does.
  std::vector<int32_t> runs;
  for (const SlotCopy& c : copies) runs.push_back(c.tokens);
  EXPECT_EQ(runs, (Ints{2, 1, 3, 1, 1}));
  EXPECT_EQ(f.contents(ids[0], 0), (std::vector<int64_t>{100, 201, 202, 203, 204, 205, 206, 207, 208}));
}

TEST(Trees, ACommittedChainMovesNothing) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 5, {-1, 0, 1, 2, 3}, 200);
  std::vector<SlotCopy> copies;
  ASSERT_TRUE(f.keep(ids, {2}, &copies).ok());
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(f.contents(ids[0], 0), (std::vector<int64_t>{200, 201, 202}));
  EXPECT_EQ(f.store.table(0).pages().used(), 1);
}

TEST(Trees, MinusOneDropsEverything) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(2);
  f.step(ids[0], 6, {}, 100);
  f.step(ids[0], 7, {-1, 0, 0, 1, 1, 2, 2}, 200);
  f.step(ids[1], 3, {-1, -1, -1}, 300);
  ASSERT_TRUE(f.keep({ids[1], ids[0]}, {-1, -1}).ok());
  EXPECT_EQ(f.length(ids[0]), 6);
  EXPECT_EQ(f.length(ids[1]), 0);
  EXPECT_EQ(f.store.table(0).pages().used(), 2);
  f.step(ids[0], 1, {}, 106);
  EXPECT_EQ(f.contents(ids[0], 0).back(), 106);
}

TEST(Trees, StackedRoundsAreOneTree) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 3, {}, 100);
  f.step(ids[0], 1, {-1}, 200);
  f.step(ids[0], 2, {0, 0}, 201);
  f.step(ids[0], 4, {1, 1, 2, 2}, 203);
  EXPECT_EQ(f.nodes(ids[0]), 7);
  ASSERT_TRUE(f.keep(ids, {5}).ok());  // 0, 2, 5
  EXPECT_EQ(f.contents(ids[0], 0), (std::vector<int64_t>{100, 101, 102, 200, 202, 205}));
}

TEST(Trees, AbortingARoundLeavesTheEarlierOnes) {
  Trees f(tree_config(4, 16, 6, 2));
  const Ids ids = f.add(1);
  f.step(ids[0], 9, {}, 100);
  f.step(ids[0], 4, {-1, 0, 0, 2}, 200);
  const uint64_t before = f.store.digest();
  Fixture::Step step;
  ASSERT_TRUE(f.begin(ids, {9}, {3, 3, 4, 4, 5, 6, 7, 8, -1}, &step).ok());
  EXPECT_NE(f.store.digest(), before);
  ASSERT_TRUE(f.rollback(step).ok());
  EXPECT_EQ(f.store.digest(), before);
  EXPECT_EQ(f.nodes(ids[0]), 4);
  ASSERT_TRUE(f.keep(ids, {3}).ok());
  EXPECT_EQ(f.contents(ids[0], 0, 9), (std::vector<int64_t>{200, 202, 203}));
}

TEST(Trees, TheDigestSeesParents) {
  uint64_t digests[2];
  for (int i = 0; i < 2; ++i) {
    Trees f(tree_config(4, 16));
    const Ids ids = f.add(1);
    f.step(ids[0], 3, {-1, 0, i}, 100);
    digests[i] = f.store.digest();
  }
  EXPECT_NE(digests[0], digests[1]);
}

TEST(Trees, ForksAndPlainAppendsAreRefused) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(2);
  f.step(ids[0], 3, {}, 100);
  f.step(ids[0], 2, {-1, 0}, 200);
  const uint64_t before = f.store.digest();
  Ids child(1);
  std::vector<SlotCopy> copies;
  EXPECT_EQ(f.store.fork(Ids{ids[0]}, {}, child, &copies).code(), KVC_ERROR_UNCOMMITTED);
  Fixture::Step step;
  EXPECT_EQ(f.begin({ids[1], ids[0]}, {1, 1}, &step).code(), KVC_ERROR_UNCOMMITTED);
  EXPECT_EQ(f.begin({ids[1], ids[0]}, {1, 1}, {-1, KVC_TREE_NONE}, &step).code(), KVC_ERROR_UNCOMMITTED);
  EXPECT_EQ(f.store.digest(), before);
  ASSERT_TRUE(f.begin({ids[1], ids[0]}, {1, 1}, {KVC_TREE_NONE, 1}, &step).ok());  // the plain row is no tree
  ASSERT_TRUE(f.commit(step).ok());
  EXPECT_EQ(f.length(ids[1]), 1);
  EXPECT_EQ(f.nodes(ids[0]), 3);
}

TEST(Trees, BadParentsAreRefusedWithTheirRow) {
  Trees f(tree_config(4, 64));
  const Ids ids = f.add(2);
  f.step(ids[0], 3, {-1, 0, 0}, 100);
  const uint64_t before = f.store.digest();
  const auto refused = [&](const Ids& rows, const Ints& lengths, const Ints& parents, kvc_status code, int64_t row) {
    Fixture::Step step;
    const Status status = f.begin(rows, lengths, parents, &step);
    kvc_error error = KVC_ERROR_INIT;
    status.write_to("f", &error);
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_EQ(error.index, row) << error.message;
    EXPECT_EQ(f.store.digest(), before);
    return error;
  };
  refused({ids[1]}, {2}, {-1, 1}, KVC_ERROR_INVALID_ARGUMENT, 0);             // its own parent
  refused({ids[1]}, {3}, {-1, 2, 0}, KVC_ERROR_INVALID_ARGUMENT, 0);          // a later node
  refused({ids[1], ids[0]}, {1, 1}, {-1, 3}, KVC_ERROR_INVALID_ARGUMENT, 1);  // the second sequence has no node 3
  refused({ids[1]}, {2}, {-1, -2}, KVC_ERROR_INVALID_ARGUMENT, 0);            // half a plain row
  refused({ids[1]}, {2}, {-2, -1}, KVC_ERROR_INVALID_ARGUMENT, 0);
  refused({ids[1]}, {1}, {-3}, KVC_ERROR_INVALID_ARGUMENT, 0);
  const kvc_error error = refused({ids[1], ids[0]}, {1, 30}, Ints(31, -1), KVC_ERROR_TREE_TOO_LARGE, 1);
  EXPECT_EQ(error.required, 33);
  EXPECT_EQ(error.available, 32);
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[1], 0, ids[0]}, {1, 1, 29}, Ints(31, -1), &step).ok());
}

TEST(Trees, BadCommitsChangeNothing) {
  Trees f(tree_config(4, 64));
  const Ids ids = f.add(3);
  f.step(ids[0], 3, {-1, 0, 0}, 100);
  f.step(ids[1], 2, {-1, 0}, 200);
  const uint64_t before = f.store.digest();
  const auto refused = [&](const Ids& rows, const Ints& leaves, kvc_status code, int64_t index) {
    std::vector<SlotCopy> copies;
    const Status status = f.store.plan_commit(rows, leaves, &copies);
    kvc_error error = KVC_ERROR_INIT;
    status.write_to("f", &error);
    EXPECT_EQ(error.code, code) << error.message;
    EXPECT_EQ(error.index, index) << error.message;
    EXPECT_TRUE(copies.empty());
    EXPECT_EQ(f.store.digest(), before);
  };
  refused({ids[0], ids[1]}, {2, 2}, KVC_ERROR_OUT_OF_RANGE, 1);
  refused({ids[0], ids[1]}, {-2, 1}, KVC_ERROR_OUT_OF_RANGE, 0);
  refused({ids[0], ids[0]}, {2, 2}, KVC_ERROR_DUPLICATE, 1);
  refused({ids[0], ids[2]}, {2, 0}, KVC_ERROR_ORDER, 1);
  refused({ids[0], ids[2]}, {2, -1}, KVC_ERROR_ORDER, 1);
  refused({ids[0], 77}, {2, 0}, KVC_ERROR_STALE_ID, 1);
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[1]}, {1}, {0}, &step).ok());
  std::vector<SlotCopy> copies;
  EXPECT_EQ(f.store.plan_commit(Ids{ids[0], ids[1]}, Ints{0, 0}, &copies).code(), KVC_ERROR_BUSY);
  ASSERT_TRUE(f.rollback(step).ok());
}

TEST(Trees, ASharedLastPageIsCopiedBeforeNodesAreWritten) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 8, {}, 100);
  const uint64_t child = f.fork(ids[0], 8);
  ASSERT_TRUE(f.store.truncate(Ids{child}, std::vector<int64_t>{6}).ok());
  f.step(child, 3, {-1, -1, 1}, 200);
  ASSERT_TRUE(f.keep({child}, {2}).ok());
  EXPECT_EQ(f.contents(child, 0), (std::vector<int64_t>{100, 101, 102, 103, 104, 105, 201, 202}));
  EXPECT_EQ(f.contents(ids[0], 0), (std::vector<int64_t>{100, 101, 102, 103, 104, 105, 106, 107}));
}

TEST(Trees, TruncateDropsTheTreeToo) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(1);
  f.step(ids[0], 6, {}, 100);
  f.step(ids[0], 7, {-1, 0, 0, 1, 1, 2, 2}, 200);
  EXPECT_EQ(f.store.truncate(ids, std::vector<int64_t>{7}).code(), KVC_ERROR_OUT_OF_RANGE);
  ASSERT_TRUE(f.store.truncate(ids, std::vector<int64_t>{6}).ok());
  EXPECT_EQ(f.nodes(ids[0]), 0);
  EXPECT_EQ(f.store.table(0).pages().used(), 2);
  ASSERT_TRUE(f.store.check_invariants({}).ok());
  f.fork(ids[0], 6);
}

TEST(Trees, RemovedWithItsTreeAndWithinATreeStep) {
  Trees f(tree_config(4, 16));
  const Ids ids = f.add(2);
  f.step(ids[0], 3, {-1, 0, 0}, 100);
  f.step(ids[1], 3, {-1, 0, 0}, 100);
  ASSERT_TRUE(f.store.remove(Ids{ids[0]}).ok());
  Fixture::Step step;
  ASSERT_TRUE(f.begin({ids[1]}, {4}, {2, 2, 2, 2}, &step).ok());
  ASSERT_TRUE(f.store.remove(Ids{ids[1]}).ok());
  ASSERT_TRUE(f.commit(step).ok());
  EXPECT_EQ(f.store.table(0).pages().used(), 0);
  const Ids again = f.add(2);
  EXPECT_EQ(f.nodes(again[0]), 0);
  f.append(again, {1, 1});
}

// While a tree is uncommitted, no page leaves the window, so rejecting the tree needs no computation. A commit then
// frees pages.
TEST(Trees, WindowsSlideAtTheCommit) {
  Trees f(tree_config(2, 64, 4));
  const Ids ids = f.add(1);
  f.step(ids[0], 10, {}, 100);
  // The next query is at 10 - 0 and sees 7..10, so the pages before 7 / 2 are freed.
  const auto dropped = [&] {
    const Ints pages = f.pages(ids[0], 1);
    return std::count(pages.begin(), pages.end(), -1);
  };
  EXPECT_EQ(dropped(), 3);
  for (int round = 0; round < 3; ++round) {
    Ints chain(8);
    for (int i = 0; i < 8; ++i) chain[static_cast<size_t>(i)] = round * 8 + i - 1;
    f.step(ids[0], 8, chain, 200 + round * 8);
    EXPECT_EQ(dropped(), 3);
  }
  const uint64_t before = f.store.digest();
  ASSERT_TRUE(f.keep(ids, {-1}).ok());
  EXPECT_NE(f.store.digest(), before);
  EXPECT_EQ(dropped(), 3);
  EXPECT_EQ(f.contents(ids[0], 1, 6), (std::vector<int64_t>{106, 107, 108, 109}));
  f.step(ids[0], 7, {-1, 0, 0, 2, 3, 4, 5}, 300);
  ASSERT_TRUE(f.keep(ids, {6}).ok());
  EXPECT_EQ(f.length(ids[0]), 16);
  EXPECT_EQ(dropped(), 6);  // the next query is at 16 and sees from 13 on
  EXPECT_EQ(f.contents(ids[0], 1, 12), (std::vector<int64_t>{303, 304, 305, 306}));
}

TEST(Trees, RandomTreesAgainstArrays) {
  for (const int64_t page_size : {1, 3, 16}) {
    std::mt19937 random(11);
    Trees f(tree_config(page_size, 1100, 5, 2));
    const Ids ids = f.add(4);
    std::vector<std::vector<int64_t>> tokens(4), nodes(4);
    std::vector<Ints> parents(4);
    int64_t value = 0;
    for (int i = 0; i < 600; ++i) {
      const size_t s = random() % 4;
      const auto count = static_cast<int32_t>(1 + random() % 9);
      if (nodes[s].empty() && random() % 3 == 0) {
        f.step(ids[s], count, {}, value);
        for (int n = 0; n < count; ++n) tokens[s].push_back(value++);
      } else if (nodes[s].size() + static_cast<size_t>(count) <= 32 && random() % 2 == 0) {
        Ints fresh;
        for (int n = 0; n < count; ++n) {
          const auto index = static_cast<int32_t>(nodes[s].size());
          fresh.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(index + 1)) - 1);
          nodes[s].push_back(value + n);
          parents[s].push_back(fresh.back());
        }
        f.step(ids[s], count, fresh, value);
        value += count;
      } else if (!nodes[s].empty()) {
        const auto leaf = static_cast<int32_t>(random() % (nodes[s].size() + 1)) - 1;
        ASSERT_TRUE(f.keep({ids[s]}, {leaf}).ok());
        std::vector<int64_t> path;
        for (int32_t n = leaf; n >= 0; n = parents[s][static_cast<size_t>(n)])
          path.insert(path.begin(), nodes[s][static_cast<size_t>(n)]);
        tokens[s].insert(tokens[s].end(), path.begin(), path.end());
        nodes[s].clear();
        parents[s].clear();
      }
      if (tokens[s].size() > 200) {
        ASSERT_TRUE(f.store.truncate(Ids{ids[s]}, std::vector<int64_t>{0}).ok());
        tokens[s].clear(), nodes[s].clear(), parents[s].clear();
      }
      ASSERT_EQ(f.contents(ids[s], 0), tokens[s]) << "page size " << page_size << " operation " << i;
      const int64_t held = f.store.list(f.store.slot_of(ids[s]), 1).first * page_size;
      const auto from = static_cast<std::ptrdiff_t>(std::min<int64_t>(held, static_cast<int64_t>(tokens[s].size())));
      ASSERT_EQ(f.contents(ids[s], 1, held), std::vector<int64_t>(tokens[s].begin() + from, tokens[s].end()));
    }
  }
}

}  // namespace
}  // namespace kvc

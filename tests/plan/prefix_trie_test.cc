// The trie of page lists, compared with a comparison of every pair, page by page.
#include "plan/prefix_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "page_lists.h"

namespace kvc {
namespace {

using Groups = std::set<std::pair<std::vector<int>, int64_t>>;  // rows, sorted, and the pages they share

// The groups by a comparison of every pair. limits: pages of a row that count; kinds: rows of one kind may share.
Groups groups_of_pairs(const PageLists& lists, const std::vector<int>& rows, const std::vector<int32_t>& limits,
                       const std::vector<int32_t>& kinds) {
  const auto common = [&](size_t a, size_t b) {
    return kinds[a] != kinds[b] ? 0 : std::min<int64_t>({lists.common(rows[a], rows[b]), limits[a], limits[b]});
  };
  Groups groups;
  for (size_t a = 0; a < rows.size(); ++a) {
    for (size_t b = a + 1; b < rows.size(); ++b) {
      const int64_t pages = common(a, b);
      std::vector<int> members;
      for (size_t c = 0; c < rows.size(); ++c) {
        if (c == a || common(a, c) >= pages) members.push_back(static_cast<int>(c));
      }
      if (pages > 0) groups.insert({members, pages});
    }
  }
  return groups;
}

Groups groups_of(const PrefixTrie& trie) {
  Groups groups;
  for (const PrefixGroup& group : trie.groups()) {
    std::vector<int> members;
    for (int32_t i = group.begin; i < group.end; ++i) members.push_back(trie.row(i));
    std::sort(members.begin(), members.end());
    groups.insert({members, group.pages});
  }
  return groups;
}

TEST(PrefixTrie, IsWhatEveryPairSays) {
  std::mt19937 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int64_t lengths[] = {3, 40, 1100};
    const int64_t most = lengths[round % 3];
    PageLists lists(40000, 32);
    const int count = 2 + static_cast<int>(below(14));
    for (int r = 0; r < count; ++r) {
      const int parent = r == 0 || below(5) == 0 ? -1 : static_cast<int>(below(r));
      const int64_t shared = parent < 0 ? 0 : below(lists.size(parent) + 1);
      lists.add(parent, shared, 1 + below(most));
    }
    std::vector<int> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    std::vector<int32_t> limits, kinds;
    PrefixTrie trie(32);
    trie.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      limits.push_back(static_cast<int32_t>(below(4) == 0 ? below(lists.size(rows[r])) : lists.size(rows[r]) - 1));
      kinds.push_back(round % 4 == 0 ? static_cast<int32_t>(below(2)) : 0);
      trie.add(static_cast<int32_t>(r), limits.back(), kinds.back());
    }
    trie.find(lists.tables(rows));
    EXPECT_EQ(groups_of(trie), groups_of_pairs(lists, rows, limits, kinds)) << "round " << round;
    for (size_t a = 0; a < trie.groups().size(); ++a) {  // outer groups first
      for (size_t b = a + 1; b < trie.groups().size(); ++b) {
        const PrefixGroup &outer = trie.groups()[a], &inner = trie.groups()[b];
        const bool apart = inner.end <= outer.begin || outer.end <= inner.begin;
        EXPECT_TRUE(apart || (outer.begin <= inner.begin && inner.end <= outer.end && outer.pages < inner.pages));
      }
    }
  }
}

// Lists with equal pages in different nodes, as after truncating two forks.
TEST(PrefixTrie, CopiedNodesWithTheSamePages) {
  PageLists lists(4000, 8);
  const int parent = lists.add(-1, 0, 1000);
  const int a = lists.add(parent, 777, 3), b = lists.add(parent, 777, 3), c = lists.add(parent, 500, 600);
  const kvc_backend_tables& tables = lists.tables({a, b, c});
  EXPECT_EQ(PrefixTrie::common_pages(tables, 0, 1, 1000), 777);
  EXPECT_EQ(PrefixTrie::common_pages(tables, 0, 1, 100), 100);
  EXPECT_EQ(PrefixTrie::common_pages(tables, 0, 2, 1000), 500);
}

// Trees of different heights.
TEST(PrefixTrie, AShortListOfALongOne) {
  PageLists lists(4000, 8);
  const int parent = lists.add(-1, 0, 20);
  const int high = lists.add(parent, 20, 2000);
  EXPECT_EQ(PrefixTrie::common_pages(lists.tables({parent, high}), 0, 1, 20), 20);
  EXPECT_EQ(PrefixTrie::common_pages(lists.tables({high, parent}), 0, 1, 12), 12);
}

// A chain in which each row shares more with the next one. A naive trie would compare all of it as often as there are
// pairs.
TEST(PrefixTrie, DeepTriesAreFoundInPart) {
  constexpr int kRows = 300;
  PageLists lists(2 * kRows, kRows);
  PrefixTrie trie(kRows);
  std::vector<int> rows;
  trie.clear();
  for (int r = 0; r < kRows; ++r) {
    rows.push_back(lists.add(r - 1, r, 2));
    trie.add(r, r + 2, 0);
  }
  trie.find(lists.tables(rows));
  int64_t comparisons = 0;
  for (const PrefixGroup& group : trie.groups()) comparisons += group.end - group.begin;
  EXPECT_GT(trie.groups().size(), 64u);
  EXPECT_LE(comparisons, (64 + 1) * kRows);
}

TEST(PrefixTrie, NothingSharedIsNoGroup) {
  PageLists lists(100, 8);
  const int a = lists.add(-1, 0, 5), b = lists.add(-1, 0, 5), c = lists.add(a, 4, 1);
  PrefixTrie trie(8);
  trie.clear();
  trie.add(0, 4, 0);
  trie.add(1, 4, 0);
  trie.find(lists.tables({a, b}));
  EXPECT_TRUE(trie.groups().empty());
  trie.clear();
  trie.add(0, 4, 0);
  trie.add(1, 4, 1);  // another kind
  trie.add(2, 0, 0);  // no page that counts
  trie.find(lists.tables({a, c, c}));
  EXPECT_TRUE(trie.groups().empty());
}

}  // namespace
}  // namespace kvc

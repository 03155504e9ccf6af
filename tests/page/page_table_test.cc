// Page lists, compared with plain vectors of page ids: every list has the entries of its vector, and the references to
// every page and node are those of the lists.
#include "page/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace kvc {
namespace {

using Model = std::vector<int32_t>;  // page ids, -1 = dropped

Model contents(const PageTable& table, const PageList& list) {
  Model out(static_cast<size_t>(list.size), -1);
  table.for_each(list, 0, list.size, [&](int64_t i, int32_t page) { out[static_cast<size_t>(i)] = page; });
  return out;
}

void expect_equal(const PageTable& table, const std::vector<PageList>& lists, const std::vector<Model>& models) {
  std::set<int32_t> alive;
  for (size_t i = 0; i < lists.size(); ++i) {
    ASSERT_EQ(contents(table, lists[i]), models[i]) << "list " << i;
    for (size_t p = 0; p < models[i].size(); ++p) ASSERT_EQ(table.at(lists[i], static_cast<int64_t>(p)), models[i][p]);
    for (const int32_t page : models[i]) {
      if (page >= 0) alive.insert(page);
    }
  }
  ASSERT_EQ(table.pages().used(), static_cast<int64_t>(alive.size()));
  for (const int32_t page : alive) ASSERT_GT(table.pages().refs(page), 0u);
}

TEST(PageTable, AppendsAcrossLevels) {
  PageTable table(40000, PageTable::nodes_needed(40000, 1, 40000, 0));
  PageList list;
  for (int32_t i = 0; i < 40000; ++i) ASSERT_EQ(table.append(list), i);
  EXPECT_EQ(list.levels, 4);
  for (const int32_t i : {0, 31, 32, 1023, 1024, 32767, 32768, 39999}) EXPECT_EQ(table.at(list, i), i);
  table.release(list);
  EXPECT_EQ(table.pages().used(), 0);
  EXPECT_EQ(table.nodes().used(), 0);
}

TEST(PageTable, SharingCostsThePathNotTheList) {
  PageTable table(200000, PageTable::nodes_needed(200000, 300, 200000, 0));
  PageList parent;
  for (int i = 0; i < 131072; ++i) table.append(parent);
  const int64_t nodes = table.nodes().used();
  std::vector<PageList> children;
  for (int i = 0; i < 256; ++i) children.push_back(table.share(parent, 131072 - 17 * i));
  EXPECT_LE(table.nodes().used() - nodes, 256 * 4);
  EXPECT_EQ(table.pages().used(), 131072);
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(table.at(children[static_cast<size_t>(i)], 131072 - 17 * i - 1), 131072 - 17 * i - 1);
  }
  table.release(parent);
  EXPECT_EQ(table.pages().used(), 131072);  // the first child still has all pages
  for (PageList& child : children) table.release(child);
  EXPECT_EQ(table.pages().used(), 0);
  EXPECT_EQ(table.nodes().used(), 0);
}

TEST(PageTable, RollingBackAnAppendRestoresTheOrderOfFreePages) {
  PageTable table(100, PageTable::nodes_needed(100, 2, 100, 0));
  PageList list;
  PageList other;
  for (int i = 0; i < 40; ++i) table.append(list);
  for (int i = 0; i < 5; ++i) table.append(other);
  table.truncate(list, 30);
  const auto order = [&] {
    std::vector<int32_t> ids;
    table.pages().for_each_free([&](int32_t id) { ids.push_back(id); });
    return ids;
  };
  const std::vector<int32_t> before = order();
  for (int i = 0; i < 20; ++i) table.append(list);
  table.truncate(list, 30);
  EXPECT_EQ(order(), before);
}

TEST(PageTable, ReplacingAndRestoringTheTail) {
  PageTable table(8, PageTable::nodes_needed(8, 2, 8, 0));
  PageList parent;
  table.append(parent);
  table.append(parent);
  PageList child = table.share(parent, 2);
  EXPECT_TRUE(child.tail_shared);
  EXPECT_FALSE(table.exclusive(child, 1));
  table.hold_page(child.tail_page);
  EXPECT_EQ(table.replace_tail(child), 2);
  EXPECT_TRUE(table.exclusive(child, 1));
  table.restore_tail(child, 1, true);
  EXPECT_EQ(contents(table, child), (Model{0, 1}));
  EXPECT_EQ(table.pages().used(), 2);
  EXPECT_EQ(table.pages().refs(1), 2u);
}

TEST(PageTable, AHoleBehindKeptEntries) {
  PageTable table(3000, PageTable::nodes_needed(3000, 2, 1 << 20, 2));
  PageList list;
  for (int i = 0; i < 2000; ++i) table.append(list);
  PageList fork = table.share(list, 2000);
  table.drop_front(list, 1500, 3);
  EXPECT_EQ(list.kept, 3);
  EXPECT_EQ(list.first, 1500);
  EXPECT_EQ(table.pages().used(), 2000) << "the fork has them still";
  for (const int i : {0, 2, 1500, 1999}) EXPECT_EQ(table.at(list, i), i);
  for (const int i : {3, 31, 32, 1000, 1499}) EXPECT_EQ(table.at(list, i), -1);
  table.release(fork);
  EXPECT_EQ(table.pages().used(), 503);
  table.drop_front(list, 1400, 1);
  EXPECT_EQ(table.at(list, 2), 2) << "a hole that would not grow at its end stays";
  PageList sinks = table.share(list, 3);
  EXPECT_FALSE(sinks.has_hole());
  EXPECT_EQ(contents(table, sinks), (Model{0, 1, 2}));
  table.drop_front(list, 2000, 3);
  EXPECT_EQ(list.tail_page, -1);
  EXPECT_EQ(table.pages().used(), 3);
  EXPECT_LE(table.nodes().used(), 4) << "no node of what was dropped is left";
  table.append(list);
  EXPECT_EQ(table.at(list, 2000), list.tail_page);
  table.truncate(list, 2);
  EXPECT_FALSE(list.has_hole());
  EXPECT_EQ(contents(table, list), (Model{0, 1}));
  table.release(list);
  table.release(sinks);
  EXPECT_EQ(table.nodes().used(), 0);
}

// An endless stream holds its sinks, its window, and the nodes above them.
TEST(PageTable, AnEndlessStreamTakesNoMoreNodes) {
  PageTable table(64, PageTable::nodes_needed(64, 1, 1 << 20, 2));
  PageList list;
  for (int i = 0; i < 300000; ++i) {
    table.append(list);
    table.drop_front(list, list.size - 20, 2);
    ASSERT_LE(table.pages().used(), 22);
    ASSERT_LE(table.nodes().used(), 1 + 3 * 3) << "a root, and three paths below it";
  }
}

// A copy of the nodes that is updated by changes alone, from time to time, as a device's copy is. Every list can be
// read from it.
class Mirror {
 public:
  explicit Mirror(PageTable& table)
      : table_(table), nodes_(static_cast<size_t>(table.nodes().size()) * 32, 0x7fffffff) {
    table.track_changes();
  }
  void expect_equal(const std::vector<PageList>& lists, const std::vector<Model>& models) {
    for (const int32_t node : table_.changes()) {
      std::copy_n(table_.node_data() + int64_t{node} * 32, 32, nodes_.begin() + int64_t{node} * 32);
    }
    table_.forget_changes();
    ASSERT_TRUE(table_.changes().empty());
    for (size_t i = 0; i < lists.size(); ++i) {
      for (size_t p = 0; p < models[i].size(); ++p) {
        if (models[i][p] < 0) continue;
        const int32_t* leaf = kvc_backend_leaf(nodes_.data(), lists[i].root, lists[i].levels, static_cast<int64_t>(p));
        ASSERT_EQ(leaf[p % 32], models[i][p]) << "list " << i << " entry " << p;
      }
    }
  }

 private:
  PageTable& table_;
  std::vector<int32_t> nodes_;
};

// Random operations on up to `kLists` lists. The number of used nodes never exceeds its bound. edges: as in
// nodes_needed.
void play(uint32_t seed, int operations, int32_t edges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << " edges " << edges);
  const bool windows = edges > 0;
  constexpr int64_t kPages = 600;
  constexpr size_t kLists = 12;
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  };
  const int64_t bound = PageTable::nodes_needed(kPages, kLists, windows ? int64_t{1} << 30 : kPages, edges);
  PageTable table(kPages, bound);
  Mirror mirror(table);
  std::vector<PageList> lists(kLists);
  std::vector<Model> models(kLists);
  for (int step = 0; step < operations; ++step) {
    const auto i = static_cast<size_t>(below(kLists));
    const auto j = static_cast<size_t>(below(kLists));
    switch (below(windows ? 6 : 5)) {
      case 0:
      case 1:
        for (int64_t n = below(50); n > 0 && table.free_pages() > 0; --n) {
          if (!windows && lists[i].size >= kPages) break;
          models[i].push_back(table.append(lists[i]));
        }
        break;
      case 2: {
        const auto count = static_cast<size_t>(below(static_cast<int64_t>(models[i].size()) + 1));
        table.truncate(lists[i], static_cast<int64_t>(count));
        models[i].resize(count);
        break;
      }
      case 3: {
        if (i == j) break;
        const auto count = static_cast<size_t>(below(static_cast<int64_t>(models[j].size()) + 1));
        table.release(lists[i]);
        lists[i] = table.share(lists[j], static_cast<int64_t>(count));
        models[i].assign(models[j].begin(), models[j].begin() + static_cast<int64_t>(count));
        break;
      }
      case 4:
        if (models[i].empty() || models[i].back() < 0 || table.free_pages() == 0) break;
        models[i].back() = table.replace_tail(lists[i]);
        break;
      default: {
        const auto count = below(static_cast<int64_t>(models[i].size()) + 1);
        int64_t keep = edges == 2 ? below(70) : 0;
        if (lists[i].has_hole()) keep = std::min<int64_t>(keep, lists[i].kept);
        if (count > keep && count > lists[i].first) {
          std::fill(models[i].begin() + keep, models[i].begin() + count, -1);
        }
        table.drop_front(lists[i], count, keep);
        break;
      }
    }
    ASSERT_LE(table.nodes().used(), bound);
    if (step % 16 == 0) expect_equal(table, lists, models);
    if (below(8) == 0) mirror.expect_equal(lists, models);
    if (testing::Test::HasFatalFailure()) return;
    for (size_t l = 0; l < kLists; ++l) {
      if (models[l].empty() || models[l].back() < 0) continue;
      int owners = 0;
      for (const Model& m : models) owners += std::count(m.begin(), m.end(), models[l].back()) > 0;
      ASSERT_EQ(table.exclusive(lists[l], lists[l].size - 1), owners == 1);
    }
  }
  expect_equal(table, lists, models);
  for (PageList& list : lists) table.release(list);
  ASSERT_EQ(table.pages().used(), 0);
  ASSERT_EQ(table.nodes().used(), 0);
}

TEST(PageTable, EqualsPlainVectors) {
  for (uint32_t seed = 1; seed <= 20; ++seed) play(seed, 2000, 0);
}

TEST(PageTable, EqualsPlainVectorsWithWindows) {
  for (uint32_t seed = 101; seed <= 120; ++seed) play(seed, 2000, 1);
}

TEST(PageTable, EqualsPlainVectorsWithHoles) {
  for (uint32_t seed = 201; seed <= 230; ++seed) play(seed, 2000, 2);
}

}  // namespace
}  // namespace kvc

// Plans with shared prefixes: every query of every row and head sees each of its keys through exactly one item, and
// each tile merges states of its rows in key order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "page_lists.h"
#include "plan/work_plan.h"

namespace kvc {
namespace {

constexpr int32_t kPageSize = 4;

// Rows of a batch with their page lists.
struct Batch {
  PageLists lists{200000, 64};
  std::vector<int> rows;  // of lists
  std::vector<int32_t> token_begin = {0}, kv_lengths;

  void add(int list, int32_t queries, int64_t length) {
    rows.push_back(list);
    token_begin.push_back(token_begin.back() + queries);
    kv_lengths.push_back(static_cast<int32_t>(length));
  }
  // A new list of `tokens` tokens, which begins with the first `shared` pages of list `parent`.
  void add(int parent, int64_t shared, int32_t queries, int64_t tokens) {
    const int64_t pages = (tokens + kPageSize - 1) / kPageSize;
    add(lists.add(parent, shared, pages - shared), queries, tokens);
  }
  kvc_backend_rows backend_rows() const {
    kvc_backend_rows backend = {};
    backend.num_rows = static_cast<int32_t>(kv_lengths.size());
    backend.num_tokens = token_begin.back();
    backend.token_begin = token_begin.data();
    backend.kv_lengths = kv_lengths.data();
    return backend;
  }
  int32_t queries(int32_t row) const { return token_begin[row + 1] - token_begin[row]; }
};

WorkShape shape_of(int32_t threads, PrefixSharing sharing) {
  WorkShape shape;
  shape.num_q_heads = 12;
  shape.num_kv_heads = 3;
  shape.head_dim = 32;
  shape.v_head_dim = 10;
  shape.key_bytes = 84;
  shape.page_size = kPageSize;
  shape.tiling = {4, 8, 2, 16, 32};
  shape.num_threads = threads;
  shape.sharing = sharing;
  return shape;
}

struct Range {
  int32_t begin, end;
  int64_t order;  // of the state in its tile
};

class Coverage {
 public:
  Coverage(const WorkPlan& plan, const Batch& batch, const BatchLimits& limits) : plan_(plan), batch_(batch) {
    check_limits(limits);
    for (const kvc_backend_item& item : plan.items()) {
      if (item.span_begin < item.span_end) {
        add_shared(item);
      } else {
        add_own(item);
      }
    }
    check_partials();
    check_tiles();
    check_ranges();
  }

 private:
  void check_limits(const BatchLimits& limits) const {
    const WorkShape& shape = plan_.shape();
    const int64_t shared = WorkPlan::max_shared_queries(shape, limits);
    EXPECT_LE(static_cast<int64_t>(plan_.items().size()), WorkPlan::max_items(shape, limits));
    EXPECT_LE(static_cast<int64_t>(plan_.tiles().size()), WorkPlan::max_tiles(shape, limits));
    EXPECT_LE(plan_.partial_floats(), WorkPlan::max_partial_floats(shape, limits));
    EXPECT_LE(static_cast<int64_t>(plan_.spans().size()), shared);
    EXPECT_LE(static_cast<int64_t>(plan_.parts().size()), shared);
  }
  void add_shared(const kvc_backend_item& item) {
    int32_t queries = 0;
    EXPECT_EQ(item.q_begin, 0);
    EXPECT_EQ(item.tile, -1);
    EXPECT_LT(item.partial_offset, 0);
    EXPECT_EQ(item.row, plan_.spans()[static_cast<size_t>(item.span_begin)].row);
    for (int32_t s = item.span_begin; s < item.span_end; ++s) {
      const kvc_backend_span& span = plan_.spans()[static_cast<size_t>(s)];
      const kvc_backend_tile& tile = plan_.tiles()[static_cast<size_t>(span.tile)];
      queries += span.q_end - span.q_begin;
      EXPECT_LE(item.key_end, batch_.kv_lengths[span.row] - batch_.queries(span.row)) << "a key of this step";
      for (int32_t key = item.key_begin; key < item.key_end; key += kPageSize) {
        EXPECT_EQ(batch_.lists.page(batch_.rows[span.row], key / kPageSize),
                  batch_.lists.page(batch_.rows[item.row], key / kPageSize));
      }
      const auto part = std::find(plan_.parts().begin() + tile.part_begin, plan_.parts().begin() + tile.part_end,
                                  span.partial_offset);
      EXPECT_NE(part, plan_.parts().begin() + tile.part_end) << "a state that its tile does not merge";
      blocks_[span.partial_offset] = (span.q_end - span.q_begin) * int64_t{12} * 12;
      ++finishes_[span.tile];
      add(span.row, span.q_begin, span.q_end, item, part - plan_.parts().begin() - tile.part_begin);
    }
    EXPECT_EQ(queries, item.q_end);
  }
  void add_own(const kvc_backend_item& item) {
    int64_t order = 0;
    if (item.tile >= 0) {
      const kvc_backend_tile& tile = plan_.tiles()[static_cast<size_t>(item.tile)];
      const int64_t index = &item - plan_.items().data();
      EXPECT_GE(index, tile.item_begin);
      EXPECT_LT(index, tile.item_end);
      order = tile.part_end - tile.part_begin + index - tile.item_begin;
      blocks_[item.partial_offset] = int64_t{item.q_end - item.q_begin} * (item.head_end - item.head_begin) * 4 * 12;
    } else {
      EXPECT_LT(item.partial_offset, 0);
    }
    add(item.row, item.q_begin, item.q_end, item, order);
  }
  void add(int32_t row, int32_t q_begin, int32_t q_end, const kvc_backend_item& item, int64_t order) {
    for (int32_t q = q_begin; q < q_end; ++q) {
      for (int32_t h = item.head_begin; h < item.head_end; ++h) {
        ranges_[{row, q, h}].push_back({item.key_begin, item.key_end, order});
      }
    }
  }
  // Blocks of states do not overlap, and fill the requested floats.
  void check_partials() const {
    int64_t next = 0;
    for (const auto& [offset, floats] : blocks_) {
      EXPECT_EQ(offset, next);
      next = offset + floats;
    }
    EXPECT_EQ(next, plan_.partial_floats());
  }
  void check_tiles() {
    for (size_t t = 0; t < plan_.tiles().size(); ++t) {
      const kvc_backend_tile& tile = plan_.tiles()[t];
      EXPECT_LT(tile.item_begin, tile.item_end) << "a tile without an item of its own";
      EXPECT_EQ(finishes_[static_cast<int32_t>(t)], tile.shared_items);
    }
  }
  void check_ranges() {
    for (int32_t row = 0; row < static_cast<int32_t>(batch_.kv_lengths.size()); ++row) {
      for (int32_t q = 0; q < batch_.queries(row); ++q) {
        for (int32_t h = 0; h < 3; ++h) {
          auto& ranges = ranges_[{row, q, h}];
          std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.order < b.order; });
          ASSERT_FALSE(ranges.empty());
          EXPECT_EQ(ranges.front().begin, 0);
          EXPECT_GT(ranges.back().end, batch_.kv_lengths[row] - batch_.queries(row) + q);
          for (size_t i = 1; i < ranges.size(); ++i) EXPECT_EQ(ranges[i].begin, ranges[i - 1].end);
        }
      }
    }
  }

  const WorkPlan& plan_;
  const Batch& batch_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<Range>> ranges_;  // (row, query, kv head)
  std::map<int64_t, int64_t> blocks_;                                           // partial offset -> floats
  std::map<int32_t, int32_t> finishes_;
};

TEST(SharedWork, CoversEveryKeyOnce) {
  std::mt19937 random(11);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const BatchLimits limits = {20, 120};
  int64_t groups = 0;
  for (int round = 0; round < 300; ++round) {
    const PrefixSharing sharing = static_cast<PrefixSharing>(round % 3);
    WorkShape shape = shape_of(1 + static_cast<int32_t>(below(9)), sharing);
    if (below(3) == 0) shape.tiling.heads_per_item = 3;  // all heads, as for a GPU
    WorkPlan plan(shape, limits);
    Batch batch;
    const int rows = static_cast<int>(below(19)) + 1;
    const int64_t longest = below(3) == 0 ? 8000 : 300;
    for (int r = 0; r < rows; ++r) {
      const int32_t left = 120 - batch.token_begin.back();
      const int32_t queries = std::min<int32_t>(left, static_cast<int32_t>(below(5) == 0 ? below(30) : below(5)));
      if (queries == 0) {
        batch.add(-1, 0, 0, 0);  // inert
        continue;
      }
      const int parent = r == 0 || below(4) == 0 ? -1 : static_cast<int>(below(r));
      const int64_t shared = parent < 0 ? 0 : below(batch.lists.size(batch.rows[parent]) + 1);
      batch.add(parent < 0 ? -1 : batch.rows[parent], shared, queries, shared * kPageSize + queries + below(longest));
    }
    const kvc_backend_rows backend = batch.backend_rows();
    plan.build(backend, 0, &batch.lists.tables(batch.rows));
    Coverage(plan, batch, limits);
    if (sharing == PrefixSharing::kNever) {
      EXPECT_EQ(plan.num_prefix_groups(), 0);
      EXPECT_TRUE(plan.spans().empty());
    }
    groups += plan.num_prefix_groups();
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(groups, 300);
}

// 16 sequences over one prompt. Items of all 16 read it once, as the cost model decides.
TEST(SharedWork, OnePromptOfManyRows) {
  const BatchLimits limits = {16, 64};
  for (int32_t threads : {1, 2, 16}) {
    WorkPlan plan(shape_of(threads, PrefixSharing::kByCost), limits);
    Batch batch;
    batch.add(-1, 0, 1, 8192 + 5);
    for (int r = 1; r < 16; ++r) batch.add(0, 2048, 1, 8192 + 5 + r);
    plan.build(batch.backend_rows(), 0, &batch.lists.tables(batch.rows));
    Coverage(plan, batch, limits);
    EXPECT_EQ(plan.num_prefix_groups(), 1);
    int64_t keys_of_head = 0;
    for (const kvc_backend_item& item : plan.items()) {
      if (item.head_begin == 0) keys_of_head += item.key_end - item.key_begin;
    }
    EXPECT_EQ(keys_of_head, 8192 + 16 * 5 + 120);
    if (threads > 1) {
      EXPECT_GE(plan.items().size(), 16u + 3);
    }
  }
}

// If items have all heads, the prompt is cut along its keys only, because a backend computes the heads and each
// query_tile of the queries in parallel.
TEST(SharedWork, OnePromptInItemsOfAllHeads) {
  const BatchLimits limits = {16, 64};
  WorkShape shape = shape_of(8, PrefixSharing::kByCost);
  shape.tiling.heads_per_item = 3;
  WorkPlan plan(shape, limits);
  Batch batch;
  batch.add(-1, 0, 1, 8192 + 5);
  for (int r = 1; r < 16; ++r) batch.add(0, 2048, 1, 8192 + 5 + r);
  plan.build(batch.backend_rows(), 0, &batch.lists.tables(batch.rows));
  Coverage(plan, batch, limits);
  int64_t shared = 0;
  for (const kvc_backend_item& item : plan.items()) {
    EXPECT_EQ(item.head_end - item.head_begin, 3);
    if (item.span_begin < item.span_end) ++shared;
  }
  // 32 items in all keep 8 threads busy, or 16 items of 16 queries, which are two tiles of 8. The rows' own keys take
  // less than one of them.
  EXPECT_GE(shared, 15);
  EXPECT_LE(shared, 16);
}

// Prompts within prompts. Each is a group, in any order of the rows. Without sharing there is no group.
TEST(SharedWork, ATrieOfPrompts) {
  const BatchLimits limits = {8, 64};
  Batch batch;
  batch.add(-1, 0, 1, 4000 + 1);   // 0
  batch.add(0, 250, 1, 2000 + 1);  // 1: 1,000 keys of row 0
  batch.add(0, 250, 1, 2000 + 1);  // 2: the same
  batch.add(1, 400, 1, 1700);      // 3: 1,600 keys of row 1
  std::reverse(batch.rows.begin(), batch.rows.end());
  std::reverse(batch.kv_lengths.begin(), batch.kv_lengths.end());
  for (PrefixSharing sharing : {PrefixSharing::kByCost, PrefixSharing::kNever}) {
    WorkPlan plan(shape_of(1, sharing), limits);
    plan.build(batch.backend_rows(), 0, &batch.lists.tables(batch.rows));
    Coverage(plan, batch, limits);
    EXPECT_EQ(plan.num_prefix_groups(), sharing == PrefixSharing::kNever ? 0 : 2);
  }
}

// Rows that must not share: rows with windows, with different RoPE sets, or with more new tokens than a decode tile
// has; and calls on the new tokens alone.
TEST(SharedWork, WhatDoesNotShare) {
  const BatchLimits limits = {8, 64};
  Batch batch;
  batch.add(-1, 0, 1, 4001);
  batch.add(0, 1000, 1, 4001);
  const kvc_backend_rows rows = batch.backend_rows();
  const kvc_backend_tables& tables = batch.lists.tables(batch.rows);
  const auto groups = [&](const WorkShape& shape, uint32_t flags, const int32_t* sets) {
    WorkPlan plan(shape, limits);
    plan.build(rows, flags, &tables, sets);
    return plan.num_prefix_groups();
  };
  const WorkShape shape = shape_of(2, PrefixSharing::kAlways);
  const int32_t unlike[] = {0, 1}, alike[] = {1, 1};
  EXPECT_EQ(groups(shape, 0, nullptr), 1);
  EXPECT_EQ(groups(shape, 0, alike), 1);
  EXPECT_EQ(groups(shape, 0, unlike), 0);
  EXPECT_EQ(groups(shape, KVC_ATTEND_PAST, nullptr), 1);
  EXPECT_EQ(groups(shape, KVC_ATTEND_SELF, nullptr), 0);
  WorkShape sliding = shape;
  sliding.visible.window = 100;
  EXPECT_EQ(groups(sliding, 0, nullptr), 0);
  WorkShape chunked = shape;
  chunked.visible.chunk = 100;
  EXPECT_EQ(groups(chunked, 0, nullptr), 0);
  batch.token_begin = {0, 5, 6};
  EXPECT_EQ(groups(shape, 0, nullptr), 0);
}

// Streaming rows see holes, and the nodes of a tree belong to their row alone.
TEST(SharedWork, StreamsAndTrees) {
  const BatchLimits limits = {8, 64};
  Batch batch;
  batch.add(-1, 0, 1, 4001);
  batch.add(0, 1000, 1, 4001);
  batch.add(0, 1000, 1, 4001);
  kvc_backend_rows rows = batch.backend_rows();
  const int32_t windows[] = {0, 64, 0}, sinks[] = {0, 4, 0};
  rows.stream_windows = windows;
  rows.stream_sinks = sinks;
  const int32_t tree_begin[] = {4001, 4001, 3000};
  rows.tree_begin = tree_begin;
  WorkPlan plan(shape_of(1, PrefixSharing::kAlways), limits);
  plan.build(rows, 0, &batch.lists.tables(batch.rows));
  ASSERT_EQ(plan.num_prefix_groups(), 1);
  ASSERT_EQ(plan.spans().size(), 2u);
  EXPECT_EQ(plan.spans()[0].row + plan.spans()[1].row, 2);
  EXPECT_EQ(plan.items()[0].key_end, 3000);
}

// KVC_ATTEND_PAST for rows whose whole past is shared: each row still has an item of its own, with no keys.
TEST(SharedWork, NothingLeftOfTheRow) {
  const BatchLimits limits = {8, 64};
  Batch batch;
  batch.add(-1, 0, 1, 4001);
  batch.add(0, 1000, 1, 4001);
  WorkPlan plan(shape_of(1, PrefixSharing::kAlways), limits);
  plan.build(batch.backend_rows(), KVC_ATTEND_PAST, &batch.lists.tables(batch.rows));
  ASSERT_EQ(plan.items().size(), 3u);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(plan.items()[i].key_begin, plan.items()[i].key_end);
    EXPECT_GE(plan.items()[i].partial_offset, 0);
  }
}

// More sharing than scratch has room for. Rows that do not fit are attended alone.
TEST(SharedWork, ScratchIsBounded) {
  const BatchLimits limits = {20, 20};
  WorkPlan plan(shape_of(1, PrefixSharing::kAlways), limits);
  Batch batch;
  batch.add(-1, 0, 1, 4001);
  for (int r = 1; r < 20; ++r) batch.add(r - 1, 40 * r, 1, 4001);  // a chain: each row shares more with the next one
  plan.build(batch.backend_rows(), 0, &batch.lists.tables(batch.rows));
  Coverage(plan, batch, limits);
  EXPECT_GT(plan.num_prefix_groups(), 1);
  EXPECT_LT(plan.num_prefix_groups(), 19);
}

}  // namespace
}  // namespace kvc

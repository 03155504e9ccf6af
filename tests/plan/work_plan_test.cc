// Every query of every row and head sees each of its keys through exactly one item, for random batches and tilings.
#include "plan/work_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/checked.h"
#include "row_batch.h"

namespace kvc {
namespace {

void expect_covers(const WorkPlan& plan, const RowBatch& batch, const BatchLimits& limits) {
  const WorkShape& shape = plan.shape();
  ASSERT_LE(static_cast<int64_t>(plan.items().size()), WorkPlan::max_items(shape, limits));
  ASSERT_LE(static_cast<int64_t>(plan.tiles().size()), WorkPlan::max_tiles(shape, limits));
  ASSERT_LE(plan.partial_floats(), WorkPlan::max_partial_floats(shape, limits));
  const int64_t ranges_of_heads = ceil_div(shape.num_kv_heads, shape.tiling.heads_per_item);
  for (int32_t queries : {1, 2, 3, 5, 8}) {
    const auto is_wide = [&](const kvc_backend_item& item) { return item.q_end - item.q_begin >= queries; };
    ASSERT_LE(std::count_if(plan.items().begin(), plan.items().end(), is_wide),
              2 * (limits.tokens / queries) * ranges_of_heads + WorkPlan::max_split_items(shape, limits));
  }
  // (row, query, kv head) -> sorted key ranges
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<std::pair<int32_t, int32_t>>> seen;
  int64_t next_partial = 0;
  for (size_t i = 0; i < plan.items().size(); ++i) {
    const kvc_backend_item& item = plan.items()[i];
    ASSERT_LT(item.key_begin, item.key_end);
    ASSERT_LE(item.head_end, shape.num_kv_heads);
    for (int32_t q = item.q_begin; q < item.q_end; ++q) {
      for (int32_t h = item.head_begin; h < item.head_end; ++h) {
        seen[{item.row, q, h}].push_back({item.key_begin, item.key_end});
      }
    }
    if (item.tile < 0) {
      ASSERT_LT(item.partial_offset, 0);
      continue;
    }
    const kvc_backend_tile& tile = plan.tiles()[static_cast<size_t>(item.tile)];
    ASSERT_GE(static_cast<int32_t>(i), tile.item_begin);
    ASSERT_LT(static_cast<int32_t>(i), tile.item_end);
    ASSERT_EQ(item.partial_offset, next_partial);
    next_partial += int64_t{item.q_end - item.q_begin} * (item.head_end - item.head_begin) *
                    (shape.num_q_heads / shape.num_kv_heads) * (shape.v_head_dim + 2);
    if (static_cast<int32_t>(i) > tile.item_begin) {
      ASSERT_EQ(item.key_begin, plan.items()[i - 1].key_end);
      ASSERT_EQ(item.key_begin % shape.tiling.split_align, 0);
    }
  }
  ASSERT_EQ(next_partial, plan.partial_floats());
  for (size_t row = 0; row < batch.kv_lengths.size(); ++row) {
    const int32_t queries = batch.token_begin[row + 1] - batch.token_begin[row];
    for (int32_t q = 0; q < queries; ++q) {
      const int32_t position = batch.kv_lengths[row] - queries + q;
      const int64_t first = shape.visible.chunk > 0    ? position / shape.visible.chunk * shape.visible.chunk
                            : shape.visible.window > 0 ? std::max<int64_t>(0, position - shape.visible.window + 1)
                                                       : 0;
      for (int32_t h = 0; h < shape.num_kv_heads; ++h) {
        const auto& ranges = seen[{static_cast<int32_t>(row), q, h}];
        ASSERT_FALSE(ranges.empty());
        ASSERT_LE(ranges.front().first, first);
        ASSERT_GT(ranges.back().second, position);
        for (size_t i = 1; i < ranges.size(); ++i) ASSERT_EQ(ranges[i].first, ranges[i - 1].second);
      }
    }
  }
}

// In a call with lists, items cover places of lists: of each query as many as its list has keys at most, and it can
// see.
TEST(WorkPlan, CoversEveryPlaceOfLists) {
  std::mt19937 random(9);
  const BatchLimits limits = {20, 200};
  int64_t splits = 0;
  for (int round = 0; round < 300; ++round) {
    WorkShape shape = small_shape(1 + static_cast<int32_t>(random() % 9), round % 3 == 0 ? 50 : 0);
    if (round % 5 == 1) shape.fix_splits();
    const int32_t listed = static_cast<int32_t>(random() % (round % 2 == 0 ? 40 : 5000));
    WorkPlan plan(shape, limits);
    RowBatch batch;
    for (int r = 0; r < 12; ++r) {
      const int32_t left = 200 - batch.token_begin.back();
      batch.add(std::min<int32_t>(left, random() % 4 == 0 ? random() % 60 : random() % 3),
                static_cast<int32_t>(random() % 9000));
    }
    plan.build(batch.rows(), 0, nullptr, nullptr, listed);
    ASSERT_LE(static_cast<int64_t>(plan.items().size()), WorkPlan::max_items(shape, limits));
    ASSERT_LE(plan.partial_floats(), WorkPlan::max_partial_floats(shape, limits));
    splits += static_cast<int64_t>(plan.tiles().size());
    std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> covered;  // (row, query, kv head) -> places from 0 on
    for (const kvc_backend_item& item : plan.items()) {
      for (int32_t q = item.q_begin; q < item.q_end; ++q) {
        for (int32_t h = item.head_begin; h < item.head_end; ++h) {
          int32_t& end = covered[{item.row, q, h}];
          ASSERT_EQ(item.key_begin, end);
          ASSERT_LE(item.key_end, listed);
          end = item.key_end;
        }
      }
    }
    for (int32_t row = 0; row < static_cast<int32_t>(batch.kv_lengths.size()); ++row) {
      const int32_t length = batch.kv_lengths[static_cast<size_t>(row)];
      const int32_t queries =
          batch.token_begin[static_cast<size_t>(row) + 1] - batch.token_begin[static_cast<size_t>(row)];
      for (int32_t q = 0; q < queries; ++q) {
        const int32_t seen =
            std::min(length - queries + q + 1, shape.visible.window > 0 ? shape.visible.window : length);
        for (int32_t h = 0; h < shape.num_kv_heads; ++h) ASSERT_GE((covered[{row, q, h}]), std::min(listed, seen));
      }
    }
  }
  EXPECT_GT(splits, 100);
}

// A batch of decode rows, of which none is cut: each row is one item, over the keys that its queries see.
TEST(WorkPlan, DecodeRowsAreItemsOverTheirWindowOrChunk) {
  struct Range {
    int32_t row, begin, end;
  };
  WorkShape window = small_shape(1, 5), chunk = small_shape(1);
  chunk.visible.chunk = 6;
  const std::pair<WorkShape, std::vector<Range>> cases[] = {
      {small_shape(1), {{0, 0, 21}, {1, 0, 23}, {3, 0, 3}, {4, 0, 1}}},
      {window, {{0, 16, 21}, {1, 16, 23}, {3, 0, 3}, {4, 0, 1}}},
      {chunk, {{0, 18, 21}, {1, 18, 23}, {3, 0, 3}, {4, 0, 1}}},
  };
  RowBatch batch;
  batch.add(1, 20);
  batch.add(3, 20);
  batch.add(0, 0);  // an inert row
  batch.add(1, 2);
  batch.add(1, 0);
  for (const auto& [shape, expected] : cases) {
    WorkPlan plan(shape, {5, 20});
    plan.build(batch.rows());
    ASSERT_EQ(plan.items().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const kvc_backend_item& item = plan.items()[i];
      const auto row = static_cast<size_t>(expected[i].row);
      EXPECT_EQ(item.row, expected[i].row);
      EXPECT_EQ(item.key_begin, expected[i].begin);
      EXPECT_EQ(item.key_end, expected[i].end);
      EXPECT_EQ(item.q_begin, 0);
      EXPECT_EQ(item.q_end, batch.token_begin[row + 1] - batch.token_begin[row]);
      EXPECT_EQ(item.head_begin, 0);
      EXPECT_EQ(item.head_end, shape.num_kv_heads);
      EXPECT_EQ(item.tile, -1);
      EXPECT_EQ(item.partial_offset, -1);
      EXPECT_EQ(item.part, 0);
      EXPECT_EQ(item.span_begin, item.span_end);
    }
    EXPECT_TRUE(plan.tiles().empty());
  }
}

TEST(WorkPlan, CoversEveryKeyOnce) {
  std::mt19937 random(7);
  const BatchLimits limits = {20, 200};
  for (int round = 0; round < 400; ++round) {
    const int32_t threads = 1 + static_cast<int32_t>(random() % 9);
    WorkShape shape = small_shape(threads, round % 3 == 0 ? 1 + static_cast<int32_t>(random() % 100) : 0);
    if (round % 3 == 1) shape.visible.chunk = 1 + static_cast<int32_t>(random() % 100);
    shape.key_bytes = round % 2 == 1 ? 64 << 10 : 1 << 10;  // long rows are cut by keys alone, or by heads too
    if (round % 5 == 1) shape.fix_splits();
    const bool in_waves = round % 4 == 2;
    if (in_waves) {
      shape.tiling.heads_per_item = shape.num_kv_heads;
      shape.tiling.resident_items = 1 + static_cast<int32_t>(random() % 50);
    }
    WorkPlan plan(shape, limits);
    RowBatch batch;
    const int rows = static_cast<int>(random() % 20);
    for (int r = 0; r < rows; ++r) {
      const int32_t left = 200 - batch.token_begin.back();
      const int32_t queries = std::min<int32_t>(
          left, in_waves ? 1 : static_cast<int32_t>(random() % 4 == 0 ? random() % 60 : random() % 3));
      batch.add(queries, static_cast<int32_t>(random() % (random() % 5 == 0 ? 20000 : 300)));
    }
    plan.build(batch.rows());
    expect_covers(plan, batch, limits);
    if (HasFatalFailure()) FAIL() << "round " << round;
  }
}

// Positions of nodes are below their indices, so a window begins at a lower index than for plain tokens.
TEST(WorkPlan, ATreesWindowGoesByPosition) {
  WorkPlan plan(small_shape(1, 6), {4, 64});
  RowBatch batch;
  batch.add(20, 100);  // 20 new nodes after 30 of earlier rounds after 70 tokens
  batch.add(20, 100);  // plain
  kvc_backend_rows rows = batch.rows();
  const int32_t begin[2] = {70, 120};
  rows.tree_begin = begin;
  plan.build(rows);
  for (const kvc_backend_item& item : plan.items()) {
    EXPECT_EQ(item.key_begin, item.row == 0 ? 70 - 5 : 100 + item.q_begin - 5);
    EXPECT_EQ(item.key_end, 100 + item.q_end);
  }
}

// The keys that a query of a streaming row sees, by the definition: sinks j < s, and max(s, p-(w-s)+1) <= j <= p.
struct Stream {
  int32_t sinks, window;
};

// Every query and head of a streaming row has its sinks in items of that part, and its window in the others, in order.
void expect_covers_stream(const WorkPlan& plan, const RowBatch& batch, const std::vector<Stream>& streams,
                          uint32_t flags) {
  using Range = std::pair<int32_t, int32_t>;
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, Range> seen;  // row, query, head, part
  for (size_t i = 0; i < plan.items().size(); ++i) {
    const kvc_backend_item& item = plan.items()[i];
    for (int32_t q = item.q_begin; q < item.q_end; ++q) {
      for (int32_t h = item.head_begin; h < item.head_end; ++h) {
        const auto [at, fresh] = seen.insert({{item.row, q, h, item.part}, {item.key_begin, item.key_end}});
        if (fresh) continue;
        ASSERT_EQ(at->second.second, item.key_begin) << "keys of a part follow one another";
        at->second.second = item.key_end;
      }
    }
    if (item.tile < 0) continue;
    const kvc_backend_tile& tile = plan.tiles()[static_cast<size_t>(item.tile)];
    ASSERT_GE(static_cast<int32_t>(i), tile.item_begin);
    ASSERT_LT(static_cast<int32_t>(i), tile.item_end);
    const kvc_backend_item& first = plan.items()[static_cast<size_t>(tile.item_begin)];
    ASSERT_EQ(first.q_begin, item.q_begin);
    ASSERT_EQ(first.head_end, item.head_end);
    ASSERT_LE(first.part == KVC_BACKEND_PART_SINKS ? 0 : 1, item.part == KVC_BACKEND_PART_SINKS ? 0 : 1);
  }
  for (size_t row = 0; row < streams.size(); ++row) {
    const auto [sinks, window] = streams[row];
    const int32_t queries = batch.token_begin[row + 1] - batch.token_begin[row];
    const int32_t past = batch.kv_lengths[row] - queries;
    for (int32_t q = 0; q < queries; ++q) {
      const int32_t p = past + q;
      const int32_t begin = (flags & KVC_ATTEND_SELF) != 0 ? past : 0;
      const int32_t end = (flags & KVC_ATTEND_PAST) != 0 ? past : p + 1;
      const int32_t left = window > 0 ? std::max(sinks, p - (window - sinks) + 1) : 0;
      for (int32_t h = 0; h < plan.shape().num_kv_heads; ++h) {
        const auto covers = [&](int32_t part, int32_t from, int32_t to) {
          from = std::max(from, begin);
          to = std::min(to, end);
          if (from >= to) return true;
          const auto found = seen.find({static_cast<int32_t>(row), q, h, part});
          return found != seen.end() && found->second.first <= from && found->second.second >= to;
        };
        ASSERT_TRUE(covers(KVC_BACKEND_PART_ALL, left, p + 1)) << "row " << row << " position " << p;
        ASSERT_TRUE(window == 0 || covers(KVC_BACKEND_PART_SINKS, 0, sinks)) << "row " << row << " position " << p;
        // Pages between sinks and window may be freed, so no item reads them.
        const auto recent = seen.find({static_cast<int32_t>(row), q, h, KVC_BACKEND_PART_ALL});
        const int32_t tile_first = past + q / plan.shape().tiling.query_tile * plan.shape().tiling.query_tile;
        const int32_t lowest = queries <= plan.shape().tiling.decode_max_queries ? past : tile_first;
        if (window > 0 && recent != seen.end() && recent->second.first < recent->second.second) {
          ASSERT_GE(recent->second.first, std::max(sinks, lowest - (window - sinks) + 1));
        }
        const auto first = seen.find({static_cast<int32_t>(row), q, h, KVC_BACKEND_PART_SINKS});
        ASSERT_TRUE(first == seen.end() || first->second.second <= sinks);
        ASSERT_TRUE(first != seen.end() || recent != seen.end()) << "a query without an item is never written";
      }
    }
  }
}

TEST(WorkPlan, StreamingRowsBecomeSinksAndWindow) {
  std::mt19937 random(11);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n)); };
  const BatchLimits limits = {20, 200, 0, true};
  for (int round = 0; round < 600; ++round) {
    WorkShape shape = small_shape(1 + below(9));
    shape.streaming = true;
    shape.key_bytes = 1 << 10;
    WorkPlan plan(shape, limits);
    RowBatch batch;
    std::vector<Stream> streams;
    std::vector<int32_t> sinks, windows;
    for (int r = below(20); r >= 0 && r < 20; --r) {
      const int32_t left = 200 - batch.token_begin.back();
      batch.add(std::min(left, below(4) == 0 ? below(60) : below(3)), below(below(5) == 0 ? 20000 : 300));
      const int32_t s = below(3) == 0 ? 0 : below(below(4) == 0 ? 3000 : 40);
      streams.push_back(below(3) == 0 ? Stream{0, 0} : Stream{s, s + 1 + below(400)});
      sinks.push_back(streams.back().sinks);
      windows.push_back(streams.back().window);
    }
    kvc_backend_rows rows = batch.rows();
    rows.stream_sinks = sinks.data();
    rows.stream_windows = windows.data();
    for (const uint32_t flags : {0u, uint32_t{KVC_ATTEND_PAST}, uint32_t{KVC_ATTEND_SELF}}) {
      plan.build(rows, flags);
      ASSERT_LE(static_cast<int64_t>(plan.items().size()), WorkPlan::max_items(shape, limits));
      ASSERT_LE(static_cast<int64_t>(plan.tiles().size()), WorkPlan::max_tiles(shape, limits));
      ASSERT_LE(plan.partial_floats(), WorkPlan::max_partial_floats(shape, limits));
      expect_covers_stream(plan, batch, streams, flags);
      if (HasFatalFailure()) FAIL() << "round " << round << " flags " << flags;
    }
  }
}

// Without splits, an item covers exactly the keys from the first to the last that one of its queries sees, by the
// definition.
TEST(WorkPlan, ItemsCoverNoKeyThatNoQuerySees) {
  std::mt19937 random(13);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 300; ++round) {
    WorkShape shape = small_shape(1);
    const int32_t kind = round % 4, n = 1 + below(60);
    shape.visible.window = kind == 1 ? n : 0;
    shape.visible.chunk = kind == 2 ? n : 0;
    shape.streaming = kind == 3;
    WorkPlan plan(shape, {4, 64, 0, shape.streaming});
    RowBatch batch;
    batch.add(1 + below(40), below(200));
    const int32_t length = batch.kv_lengths[0], first_new = length - batch.token_begin[1];
    const int32_t padding = kind != 3 && below(2) == 0 ? below(first_new + 1) : 0;
    const int32_t window = kind == 3 ? n : 0, sinks = kind == 3 ? below(n) : 0;
    kvc_backend_rows rows = batch.rows();
    rows.key_begins = &padding;
    rows.stream_windows = &window;
    rows.stream_sinks = &sinks;
    plan.build(rows);
    for (const kvc_backend_item& item : plan.items()) {
      int32_t begin = INT32_MAX, end = 0;
      for (int32_t p = first_new + item.q_begin; p < first_new + item.q_end; ++p) {
        for (int32_t j = padding; j <= p; ++j) {
          if (kind == 1 && j < p - n + 1) continue;
          if (kind == 2 && (j - padding) / n != (p - padding) / n) continue;
          if (kind == 3 && j >= sinks && j < p - (window - sinks) + 1) continue;
          if ((j < sinks) != (item.part == KVC_BACKEND_PART_SINKS)) continue;
          begin = std::min(begin, j);
          end = std::max(end, j + 1);
        }
      }
      ASSERT_EQ(item.key_begin, begin) << "round " << round << " queries " << item.q_begin << " part " << item.part;
      ASSERT_EQ(item.key_end, end) << "round " << round << " queries " << item.q_begin << " part " << item.part;
    }
  }
}

// Sinks that are nodes. Their positions are below s, but not their indices.
TEST(WorkPlan, ATreeWithinTheSinks) {
  WorkShape shape = small_shape(1);
  shape.streaming = true;
  WorkPlan plan(shape, {4, 64, 64, true});
  RowBatch batch;
  batch.add(4, 16);  // 4 new nodes after 13 earlier ones after 3 tokens
  kvc_backend_rows rows = batch.rows();
  const int32_t begin = 3;
  const int32_t sinks = 6;
  const int32_t window = 9;
  rows.tree_begin = &begin;
  rows.stream_sinks = &sinks;
  rows.stream_windows = &window;
  plan.build(rows);
  ASSERT_EQ(plan.items().size(), 2u);
  EXPECT_EQ(plan.items()[0].part, KVC_BACKEND_PART_SINKS);
  EXPECT_EQ(plan.items()[0].key_begin, 0);
  EXPECT_EQ(plan.items()[0].key_end, 20);
  EXPECT_EQ(plan.items()[1].key_begin, 6);
  EXPECT_EQ(plan.items()[1].key_end, 20);
}

// Calls that see only a part of the keys. Every row still has its item, over no more than that part.
TEST(WorkPlan, FollowsTheFlagsOfTheCall) {
  for (int32_t threads : {1, 8}) {
    WorkPlan plan(small_shape(threads), {4, 64});
    RowBatch batch;
    batch.add(1, 5000);
    batch.add(20, 300);
    batch.add(7, 0);
    for (uint32_t flags : {KVC_ATTEND_NON_CAUSAL, KVC_ATTEND_PAST, KVC_ATTEND_SELF}) {
      plan.build(batch.rows(), flags);
      std::vector<int64_t> covered(28, 0);  // keys of each query's items of the first kv head
      for (const kvc_backend_item& item : plan.items()) {
        EXPECT_LE(item.key_begin, item.key_end);
        for (int32_t q = item.q_begin; q < item.q_end && item.head_begin == 0; ++q) {
          covered[static_cast<size_t>(batch.token_begin[static_cast<size_t>(item.row)] + q)] +=
              item.key_end - item.key_begin + 1000000 * (item.tile < 0);
        }
      }
      for (size_t token = 0; token < covered.size(); ++token) {
        const size_t row = token < 1 ? 0 : token < 21 ? 1 : 2;
        const int64_t past[] = {5000, 300, 0}, fresh[] = {1, 20, 7};
        const int64_t keys = covered[token] % 1000000;
        if (flags == KVC_ATTEND_NON_CAUSAL) {
          EXPECT_EQ(keys, past[row] + fresh[row]);
        }
        if (flags == KVC_ATTEND_PAST) {
          EXPECT_EQ(keys, past[row]);
        }
        if (flags == KVC_ATTEND_SELF) {
          EXPECT_LE(keys, fresh[row]);
        }
        if (keys == 0) {
          EXPECT_EQ(covered[token], 1000000) << "an empty row is written once";
        }
      }
    }
  }
}

// A backend may skip the rules of a query that sees all keys of its item (kvc_backend_plan.exact_items).
TEST(WorkPlan, ItemsAreExactWhereNoOtherRuleHidesKeys) {
  const auto is_exact = [](int32_t window, uint32_t flags, const int32_t* key_ends, const int32_t* key_begins) {
    WorkPlan plan(small_shape(8, window), {4, 64});
    RowBatch batch;
    batch.add(1, 5000);
    batch.add(3, 300);
    kvc_backend_rows rows = batch.rows();
    rows.key_ends = key_ends;
    rows.key_begins = key_begins;
    plan.build(rows, flags);
    kvc_backend_layer layer = {};
    kvc_backend_plan filled = {};
    plan.fill(rows, {}, nullptr, layer, &filled);
    for (const kvc_backend_item& item : plan.items()) {
      if (filled.exact_items == 0 || item.row != 0) continue;
      EXPECT_GE(item.key_begin, window > 0 ? 5001 - window : 0);
      EXPECT_LE(item.key_end, 5001);
    }
    return filled.exact_items;
  };
  const int32_t ends[] = {5001, 301, 302, 303}, begins[] = {7, 0};
  EXPECT_EQ(is_exact(0, 0, nullptr, nullptr), 1);
  EXPECT_EQ(is_exact(100, 0, nullptr, nullptr), 1);
  EXPECT_EQ(is_exact(0, KVC_ATTEND_NON_CAUSAL, nullptr, nullptr), 0);
  EXPECT_EQ(is_exact(0, KVC_ATTEND_PAST, nullptr, nullptr), 0);
  EXPECT_EQ(is_exact(0, 0, ends, nullptr), 0);
  EXPECT_EQ(is_exact(0, 0, nullptr, begins), 0);
}

TEST(WorkPlan, NothingForNoRows) {
  WorkPlan plan(small_shape(4), {4, 16});
  plan.build(RowBatch().rows());
  EXPECT_TRUE(plan.items().empty());
}

}  // namespace
}  // namespace kvc

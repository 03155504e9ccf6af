// How WorkPlan cuts rows into items: by heads, by keys, and by how many items can run at once.
#include <gtest/gtest.h>

#include <algorithm>

#include "row_batch.h"

namespace kvc {
namespace {

TEST(Splits, OneThreadNeverSplits) {
  WorkPlan plan(small_shape(1), {4, 16});
  RowBatch batch;
  batch.add(1, 100000);
  plan.build(batch.rows());
  EXPECT_EQ(plan.items().size(), 1u);
  EXPECT_TRUE(plan.tiles().empty());
}

TEST(Splits, ALongDecodeRowIsSharedAmongThreads) {
  WorkPlan plan(small_shape(8), {4, 16});
  RowBatch batch;
  batch.add(1, 100000);
  plan.build(batch.rows());
  EXPECT_GE(plan.items().size(), 8u);
  EXPECT_EQ(plan.tiles().size(), 2u) << "two heads, and one";
}

// One row of 8 kv heads with 512 bytes for each key: how many heads an item has, and how many parts the keys of a head
// have.
TEST(Splits, SmallDecodeRowsAreCutByHeads) {
  struct Expected {
    int32_t threads, keys, heads_each, key_parts;
  };
  for (const Expected expected : {
           Expected{2, 31, 8, 1},       // too few keys for two items
           Expected{2, 32, 4, 1},       // as many items as there is work for
           Expected{2, 64, 2, 1},       //
           Expected{2, 1024, 1, 1},     // four items a thread, nothing to merge
           Expected{2, 4096, 1, 1},     // items of 2 MiB
           Expected{2, 16384, 8, 8},    // whole pages are faster to read from memory
           Expected{4, 4096, 1, 2},     // more items than heads
           Expected{16, 1024, 1, 2},    // parts have at least min_split_keys keys of all heads
           Expected{16, 32768, 1, 8},   //
           Expected{16, 65536, 8, 64},  //
       }) {
    WorkShape shape;
    shape.num_q_heads = 32;
    shape.num_kv_heads = 8;
    shape.v_head_dim = 128;
    shape.key_bytes = 512;
    shape.tiling = {8, 128, 1, 64, 64};
    shape.num_threads = expected.threads;
    WorkPlan plan(shape, {4, 16});
    RowBatch batch;
    batch.add(1, expected.keys - 1);
    plan.build(batch.rows());
    SCOPED_TRACE(std::to_string(expected.threads) + " threads, " + std::to_string(expected.keys) + " keys");
    const int32_t ranges = 8 / expected.heads_each;
    ASSERT_EQ(plan.items().size(), static_cast<size_t>(ranges * expected.key_parts));
    EXPECT_EQ(plan.tiles().size(), static_cast<size_t>(expected.key_parts > 1 ? ranges : 0));
    for (size_t i = 0; i < plan.items().size(); ++i) {
      const kvc_backend_item& item = plan.items()[i];
      EXPECT_EQ(item.head_begin, static_cast<int32_t>(i) / expected.key_parts * expected.heads_each);
      EXPECT_EQ(item.head_end, item.head_begin + expected.heads_each);
    }
  }
}

// If only some number of items can run at once, a few more would run alone in the end. So rows are cut such that all
// items run at once, or such that two waves of items are full.
TEST(Splits, ItemsFillWholeWaves) {
  struct Expected {
    int32_t resident, rows, keys;
    size_t items;
  };
  for (const Expected expected : {
           Expected{33, 32, 8192, 32},  // one wave of whole rows
           Expected{49, 32, 8192, 96},  // 64 halves would need two waves, of which the second is short
           Expected{33, 31, 8192, 31},  // two waves of halves take no less time than whole rows
           Expected{33, 20, 8192, 60},  // three waves of halves, or two of thirds
           Expected{33, 16, 8192, 32},  //
           Expected{33, 12, 8192, 60},  // 36 thirds would need two waves
           Expected{33, 1, 65536, 32},  //
           Expected{33, 20, 1024, 20},  // parts would have too few keys
           Expected{33, 80, 8192, 80},  //
           Expected{0, 20, 8192, 40},   // the number does not matter
       }) {
    WorkShape shape;
    shape.num_q_heads = 32;
    shape.num_kv_heads = 8;
    shape.v_head_dim = 128;
    shape.key_bytes = 512;
    shape.tiling = {8, 128, 8, 64, 512, std::max(8, expected.resident / 4), expected.resident};
    shape.num_threads = shape.tiling.parallel_items;
    WorkPlan plan(shape, {64, 64});
    RowBatch batch;
    for (int32_t row = 0; row < expected.rows; ++row) batch.add(1, expected.keys - 1);
    plan.build(batch.rows());
    EXPECT_EQ(plan.items().size(), expected.items)
        << expected.resident << " at once, " << expected.rows << " rows of " << expected.keys;
  }
}

// A backend gets no items with fewer heads than its tiling has, and no other number of splits than the caller's.
TEST(Splits, HeadsStayTogether) {
  WorkShape shape = small_shape(8);
  shape.tiling.heads_per_item = 3;
  WorkPlan whole(shape, {4, 16});
  shape.tiling.heads_per_item = 1;
  shape.key_splits = 5;
  WorkPlan counted(shape, {4, 16});
  RowBatch batch;
  batch.add(1, 2000);
  for (WorkPlan* plan : {&whole, &counted}) {
    plan->build(batch.rows());
    EXPECT_GE(plan->items().size(), 5u);
    EXPECT_EQ(plan->tiles().size(), 1u);
    for (const kvc_backend_item& item : plan->items()) EXPECT_EQ(item.head_end - item.head_begin, 3);
  }
}

// With fixed splits a row has an item for each block, as long as there is room for items and for the floats of their
// states.
TEST(Splits, FixedSplitsAreBounded) {
  for (const auto& [v_head_dim, blocks] : {std::pair{10, 4096}, std::pair{1022, 2048}}) {
    WorkShape shape = small_shape(8);
    shape.num_q_heads = 4;
    shape.num_kv_heads = 1;
    shape.v_head_dim = v_head_dim;
    shape.fix_splits();
    const BatchLimits limits = {1, 1};
    WorkPlan plan(shape, limits);
    for (const bool fits : {true, false}) {
      RowBatch batch;
      batch.add(1, (blocks + (fits ? 0 : 1)) * shape.tiling.split_align - 1);
      plan.build(batch.rows());
      EXPECT_EQ(plan.items().size(), fits ? static_cast<size_t>(blocks) : 1u);
      EXPECT_LE(static_cast<int64_t>(plan.items().size()), WorkPlan::max_items(shape, limits));
      EXPECT_LE(plan.partial_floats(), WorkPlan::max_partial_floats(shape, limits));
    }
  }
}

TEST(Splits, AShortRowIsNotWorthASplit) {
  WorkPlan plan(small_shape(8), {4, 16});
  RowBatch batch;
  batch.add(1, 40);
  plan.build(batch.rows());
  EXPECT_EQ(plan.items().size(), 1u);
}

}  // namespace
}  // namespace kvc

#include "plan/batch_plan.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

TEST(BatchPlan, MapsTokensToPositionsAndSlots) {
  SequenceStoreConfig config;
  config.groups.push_back({{{}, 0, 4}, 32});
  config.groups.push_back({{kernels::see_window(6), 0, 4}, 32});
  config.groups.push_back({{.page_size = 4, .tokens_per_row = 2}, 32});
  config.max_sequences = 4;
  config.max_length = 1 << 20;
  SequenceStore store(config);
  std::vector<uint64_t> ids(2);
  ASSERT_TRUE(store.add(ids).ok());
  BatchPlan plan({8, 64}, 3);
  std::vector<Reservation> reservations(12);
  std::vector<SlotCopy> copies;
  std::vector<int32_t> slots(4);
  const auto step = [&](const std::vector<uint64_t>& batch, const std::vector<int32_t>& lengths) {
    const std::span<int32_t> used(slots.data(), batch.size());
    ASSERT_TRUE(store.check_step(batch, lengths, used).ok());
    store.reserve(used, lengths, reservations, &copies);
    plan.build(store, used, lengths);
  };
  const auto commit = [&](const std::vector<int32_t>& lengths) {
    store.commit({slots.data(), lengths.size()}, lengths, reservations);
  };
  step({ids[0]}, {6});
  commit({6});
  step({ids[1], 0, ids[0], 0}, {5, 2, 3, 0});

  const kvc_backend_rows& rows = plan.rows();
  EXPECT_EQ(rows.num_rows, 4);
  EXPECT_EQ(rows.num_tokens, 10);
  EXPECT_EQ(std::vector<int32_t>(rows.token_begin, rows.token_begin + 5), (std::vector<int32_t>{0, 5, 7, 10, 10}));
  EXPECT_EQ(std::vector<int32_t>(rows.kv_lengths, rows.kv_lengths + 4), (std::vector<int32_t>{5, -1, 9, -1}));
  EXPECT_EQ(std::vector<int32_t>(rows.positions, rows.positions + 10),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 0, 6, 7, 8}));
  EXPECT_EQ(std::vector<int32_t>(plan.last_rows(), plan.last_rows() + 4), (std::vector<int32_t>{4, 6, 9, -1}));
  // Sequence 0 has pages 0, 1 and then 4; sequence 1 took 2, 3.
  const std::vector<int64_t> mapping = {8, 9, 10, 11, 12, -1, -1, 6, 7, 16};
  for (int32_t g = 0; g < 2; ++g) {
    EXPECT_EQ(std::vector<int64_t>(plan.slot_mapping(g), plan.slot_mapping(g) + 10), mapping) << g;
    EXPECT_EQ(plan.tables(g).roots[1], -1);
    EXPECT_EQ(plan.tables(g).levels[2], 1);
  }
  // Rows of 2 tokens: sequence 1 closes rows 0 and 1 in page 2, sequence 0 row 3 in page 1. Pages have 2 of them.
  EXPECT_EQ(plan.num_appended(1), 10);
  ASSERT_EQ(plan.num_appended(2), 3);
  EXPECT_EQ(std::vector<int64_t>(plan.slot_mapping(2), plan.slot_mapping(2) + 3), (std::vector<int64_t>{4, 5, 3}));
  const kvc_backend_rows& pairs = plan.rows(2);
  EXPECT_EQ(std::vector<int32_t>(pairs.kv_lengths, pairs.kv_lengths + 4), (std::vector<int32_t>{2, -1, 4, -1}));
  EXPECT_EQ(std::vector<int32_t>(pairs.positions, pairs.positions + 10),
            (std::vector<int32_t>{-1, 0, 0, 1, 1, -1, -1, 2, 3, 3}));
  commit({5, 2, 3, 0});
  step({ids[0]}, {1});  // a decode step inside page 4
  EXPECT_EQ(plan.slot_mapping(0)[0], 4 * 4 + 1);
  EXPECT_EQ(plan.num_appended(2), 1);
  EXPECT_EQ(plan.slot_mapping(2)[0], 4 * 2);
}

TEST(BatchPlan, RowsStreamFromTheTokenOnThatTheirWindowLacks) {
  SequenceStoreConfig config;
  config.groups.push_back({{{}, 0, 4}, 32});
  config.groups.push_back({{kernels::see_window(6), 0, 4}, 32});
  config.max_sequences = 4;
  config.max_length = 1 << 20;
  config.streaming = true;
  SequenceStore store(config);
  std::vector<uint64_t> ids(3);
  ASSERT_TRUE(store.add(ids).ok());
  const std::vector<StreamWindow> streams = {{4, 5}, {0, 8}, {}};
  ASSERT_TRUE(store.set_streams(ids, streams, false).ok());
  BatchPlan plan({8, 64, 0, true}, 2);
  std::vector<Reservation> reservations(8);
  std::vector<SlotCopy> copies;
  std::vector<int32_t> slots(4);
  const auto step = [&](const std::vector<uint64_t>& batch, const std::vector<int32_t>& lengths) {
    const std::span<int32_t> used(slots.data(), batch.size());
    ASSERT_TRUE(store.check_step(batch, lengths, used).ok());
    store.reserve(used, lengths, reservations, &copies);
    plan.build(store, used, lengths);
    plan.add_streams(store, used);
  };
  step({ids[0], 0, ids[1], ids[2]}, {5, 1, 8, 9});
  EXPECT_EQ(plan.stream_windows(), nullptr) << "as long as its window, a row sees all";
  EXPECT_EQ(plan.rows(0).stream_windows, nullptr);
  store.commit({slots.data(), 4}, std::vector<int32_t>{5, 1, 8, 9}, reservations);
  step({ids[0], 0, ids[1], ids[2]}, {3, 1, 1, 1});
  const std::vector<int32_t> windows(plan.stream_windows(), plan.stream_windows() + 4);
  EXPECT_EQ(windows, (std::vector<int32_t>{5, 0, 8, 0}));
  EXPECT_EQ(plan.rows(0).stream_windows, plan.stream_windows());
  EXPECT_EQ(std::vector<int32_t>(plan.rows(0).stream_sinks, plan.rows(0).stream_sinks + 4),
            (std::vector<int32_t>{4, 0, 0, 0}));
  EXPECT_EQ(plan.rows(1).stream_windows, nullptr) << "a sliding group has its own window";
  EXPECT_EQ(std::vector<int32_t>(plan.sink_positions(), plan.sink_positions() + 6),
            (std::vector<int32_t>{4, 4, 4, 0, 7, 9}));
  // In deterministic caches, sinks are a part of their own from the first token on.
  BatchPlan apart({8, 64, 0, true, true}, 2);
  std::vector<uint64_t> fresh(1);
  ASSERT_TRUE(store.add(fresh).ok());
  ASSERT_TRUE(store.set_streams(fresh, std::vector<StreamWindow>{{2, 5}}, false).ok());
  const std::span<int32_t> used(slots.data(), 1);
  const std::vector<int32_t> lengths = {3};
  ASSERT_TRUE(store.check_step(fresh, lengths, used).ok());
  store.reserve(used, lengths, reservations, &copies);
  apart.build(store, used, lengths);
  apart.add_streams(store, used);
  ASSERT_NE(apart.stream_windows(), nullptr);
  EXPECT_EQ(apart.stream_windows()[0], 5);
  EXPECT_EQ(std::vector<int32_t>(apart.sink_positions(), apart.sink_positions() + 3), (std::vector<int32_t>{0, 1, 2}));
}

TEST(BatchPlan, TreesStandBesidePlainRows) {
  SequenceStoreConfig config;
  config.groups.push_back({{{}, 0, 4}, 32});
  config.max_sequences = 4;
  config.max_length = 1 << 20;
  config.max_tree_nodes = 8;
  SequenceStore store(config);
  std::vector<uint64_t> ids(2);
  ASSERT_TRUE(store.add(ids).ok());
  BatchPlan plan({8, 64, 8}, 1);
  std::vector<Reservation> reservations(8);
  std::vector<SlotCopy> copies;
  std::vector<int32_t> slots(4);
  const auto step = [&](const std::vector<uint64_t>& batch, const std::vector<int32_t>& lengths,
                        const std::vector<int32_t>& parents) {
    const std::span<int32_t> used(slots.data(), batch.size());
    ASSERT_TRUE(store.check_trees(batch, lengths, parents).ok());
    ASSERT_TRUE(store.check_step(batch, lengths, used, {.with_trees = true}).ok());
    store.reserve(used, lengths, reservations, &copies);
    store.add_nodes(used, lengths, parents);
    plan.build(store, used, lengths);
    plan.add_trees(store, used, lengths);
    store.close_nodes(used, lengths, true);
    store.commit(used, lengths, reservations);
  };
  constexpr int32_t kNone = KVC_TREE_NONE;
  step({ids[0]}, {5}, {kNone, kNone, kNone, kNone, kNone});
  EXPECT_EQ(plan.rows().tree_begin[0], 5);
  step({ids[0]}, {3}, {-1, 0, 0});
  step({ids[1], 0, ids[0]}, {2, 1, 3}, {kNone, kNone, 99, 1, -1, 3});

  const kvc_backend_rows& rows = plan.rows();
  EXPECT_EQ(std::vector<int32_t>(rows.kv_lengths, rows.kv_lengths + 3), (std::vector<int32_t>{2, -1, 11}));
  EXPECT_EQ(std::vector<int32_t>(rows.positions, rows.positions + 6), (std::vector<int32_t>{0, 1, 0, 7, 5, 8}));
  EXPECT_EQ(std::vector<int32_t>(rows.tree_begin, rows.tree_begin + 3), (std::vector<int32_t>{2, -1, 5}));
  const kvc_backend_tree_node* nodes = rows.tree_nodes + rows.tree_offset[2];
  const int32_t expected[6][3] = {{0, 5, 5}, {1, 4, 6}, {4, 5, 6}, {2, 4, 7}, {5, 6, 5}, {3, 4, 8}};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(nodes[i].enter, expected[i][0]) << i;
    EXPECT_EQ(nodes[i].exit, expected[i][1]) << i;
    EXPECT_EQ(nodes[i].position, expected[i][2]) << i;
  }
  // Nodes are stored in order, whatever their positions are.
  EXPECT_EQ(std::vector<int64_t>(plan.slot_mapping(0), plan.slot_mapping(0) + 6),
            (std::vector<int64_t>{8, 9, -1, 12, 13, 14}));
}

}  // namespace
}  // namespace kvc

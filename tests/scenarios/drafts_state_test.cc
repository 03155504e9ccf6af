// Drafts over recurrent states: a cache that keeps the states of draft nodes, and the values of fresh states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "wrappers.h"

namespace kvt {
namespace {

// One recurrent layer, whose only state is a number. A sequence's state is the sum of its tokens, in these tests powers
// of ten. So a state tells which tokens it has seen.
class DraftStates : public testing::Test {
 protected:
  DraftStates() {
    kvc_state_config_init(&state_);
    state_.rank = 1;
    state_.shape[0] = 1;
    kvc_layer_config_init(&layer_);
    layer_.states = &state_;
    layer_.num_states = 1;
    kvc_group_config_init(&group_);
    group_.row = KVC_ROW_STATE;
    kvc_cache_config_init(&config_);
    config_.layers = &layer_;
    config_.groups = &group_;
    config_.num_layers = config_.num_groups = 1;
    config_.max_sequences = 3;
    config_.max_batch_tokens = 64;
    config_.max_draft_states = 3;
  }
  void open() {
    kvc_cache *raw = nullptr;
    ASSERT_EQ(kvc_cache_create(context_.get(), &config_, &raw, &error_), KVC_OK) << error_.message;
    cache_.reset(raw);
    ASSERT_EQ(kvc_seq_add(raw, 1, &seq_, &error_), KVC_OK);
  }
  kvc_status begin(std::vector<int32_t> parents, kvc_forward *f, bool only_check = false) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    const auto length = static_cast<int32_t>(parents.size());
    batch.sequences = &seq_;
    batch.append_lengths = &length;
    batch.num_sequences = 1;
    batch.tree_parents = parents.data();
    return only_check ? kvc_cache_can_fit(cache_.get(), &batch, &error_)
                      : kvc_forward_begin(cache_.get(), &batch, nullptr, f, &error_);
  }
  kvc_status store_after(kvc_forward f, int32_t token, float value) {
    Tensor t(DType::kF32, {1, 1});
    t.set(0, 0, value);
    return kvc_forward_store_state(cache_.get(), f, 0, 0, token, t.dl(), &error_);
  }
  float load_before(kvc_forward f, int32_t token) {
    Tensor t(DType::kF32, {1, 1});
    t.set(0, 0, -1.0f);  // stays, if it is not written
    EXPECT_EQ(kvc_forward_load_state(cache_.get(), f, 0, 0, token, t.dl(), &error_), KVC_OK) << error_.message;
    return t.at(0, 0);
  }
  // A step of these parents, with states after its tokens. Returns the state before it.
  float step(std::vector<int32_t> parents, std::vector<float> after) {
    kvc_forward f = 0;
    EXPECT_EQ(begin(parents, &f), KVC_OK) << error_.message;
    const float before = load_before(f, -1);
    for (size_t i = 0; i < after.size(); i++) {
      const bool last = i + 1 == after.size();
      EXPECT_EQ(store_after(f, last ? -1 : static_cast<int32_t>(i), after[i]), KVC_OK) << error_.message;
    }
    EXPECT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_OK) << error_.message;
    EXPECT_EQ(kvc_cache_check_invariants(cache_.get(), &error_), KVC_OK) << error_.message;
    return before;
  }
  kvc_status commit(int32_t leaf) {
    const kvc_status status = kvc_seq_commit(cache_.get(), 1, &seq_, &leaf, nullptr, &error_);
    EXPECT_EQ(kvc_cache_check_invariants(cache_.get(), nullptr), KVC_OK);
    return status;
  }
  int64_t length() const {
    int64_t n = -1;
    EXPECT_EQ(kvc_seq_lengths(cache_.get(), 1, &seq_, &n, nullptr), KVC_OK);
    return n;
  }
  int64_t used() const {
    kvc_stats stats;
    kvc_stats_init(&stats);
    EXPECT_EQ(kvc_cache_stats(cache_.get(), 0, &stats, nullptr), KVC_OK);
    return stats.pages_used;
  }

  ContextPtr context_ = make_context(2);
  CachePtr cache_;
  kvc_seq seq_ = 0;
  kvc_error error_ = KVC_ERROR_INIT;
  kvc_state_config state_;
  kvc_layer_config layer_;
  kvc_group_config group_;
  kvc_cache_config config_;
};

TEST_F(DraftStates, EachNodeOfAChainCanBeCommitted) {
  open();
  step({KVC_TREE_NONE}, {1});
  float state = 1;
  for (int32_t leaf = -1; leaf < 4; leaf++) {
    EXPECT_EQ(step({-1, 0, 1, 2}, {state + 10, state + 110, state + 1110, state + 11110}), state) << leaf;
    EXPECT_EQ(used(), 5) << "the state before the chain, those of three nodes, and the last";
    ASSERT_EQ(commit(leaf), KVC_OK) << error_.message;
    EXPECT_EQ(used(), 1);
    const float added[] = {0, 10, 110, 1110, 11110};
    EXPECT_EQ(step({KVC_TREE_NONE}, {7}), state + added[leaf + 1]) << leaf;
    state = 7;
  }
  EXPECT_EQ(length(), 1 + 5 + 0 + 1 + 2 + 3 + 4);
}

TEST_F(DraftStates, OnlyNodesWithAStateCanBeCommitted) {
  open();
  kvc_forward f = 0;
  ASSERT_EQ(begin({-1, 0, 1, 2, 3}, &f), KVC_OK) << error_.message;
  EXPECT_EQ(store_after(f, 1, 110), KVC_OK);
  EXPECT_EQ(store_after(f, 3, 11110), KVC_ERROR_OUT_OF_RANGE);
  EXPECT_NE(std::strstr(error_.message, "token 3 is outside [-1, 3)"), nullptr) << error_.message;
  EXPECT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_ERROR_ORDER);
  EXPECT_NE(std::strstr(error_.message, "after the last token"), nullptr) << error_.message;
  EXPECT_EQ(store_after(f, -1, 111110), KVC_OK);
  ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(used(), 2) << "pages of states that were not stored are given back";
  for (const int32_t leaf : {0, 2, 3}) {
    EXPECT_EQ(commit(leaf), KVC_ERROR_EVICTED) << leaf;
    EXPECT_EQ(error_.index, 0);
  }
  EXPECT_NE(std::strstr(error_.message, "leaf 3 at index 0"), nullptr) << error_.message;
  ASSERT_EQ(commit(1), KVC_OK) << error_.message;
  EXPECT_EQ(length(), 2);
  EXPECT_EQ(step({KVC_TREE_NONE}, {1}), 110);
}

TEST_F(DraftStates, ATreeMayBranchWhereStatesAreKept) {
  open();
  step({KVC_TREE_NONE}, {1});
  kvc_forward f = 0;
  // 0 and 1 are children of the root, 2 is one of 0.
  ASSERT_EQ(begin({-1, -1, 0}, &f), KVC_OK) << error_.message;
  EXPECT_EQ(load_before(f, 0), 1);
  EXPECT_EQ(load_before(f, 1), 1) << "a second root continues the sequence too";
  EXPECT_EQ(store_after(f, 0, 11), KVC_OK);
  EXPECT_EQ(store_after(f, 1, 101), KVC_OK);
  EXPECT_EQ(load_before(f, 2), 11) << "stored by this forward";
  EXPECT_EQ(store_after(f, 2, 1011), KVC_OK);
  ASSERT_EQ(kvc_forward_end(cache_.get(), f, &error_), KVC_OK) << error_.message;
  // A later step continues node 1, then node 3.
  EXPECT_EQ(step({1, 3}, {10101, 110101}), 101);
  EXPECT_EQ(begin({3}, &f), KVC_ERROR_INVALID_ARGUMENT) << "only the first three nodes have states, and the last";
  EXPECT_NE(std::strstr(error_.message, "node 5 has parent 3"), nullptr) << error_.message;
  EXPECT_EQ(step({-1}, {1000001}), 1);
  EXPECT_EQ(commit(4), KVC_ERROR_EVICTED) << "its state was kept until node 5 came";
  ASSERT_EQ(commit(2), KVC_OK) << error_.message;
  EXPECT_EQ(length(), 3);
  EXPECT_EQ(step({KVC_TREE_NONE}, {1}), 1011);
}

TEST_F(DraftStates, PagesAreCountedBeforeAStepBegins) {
  group_.num_pages = 5;
  open();
  step({KVC_TREE_NONE}, {1});
  kvc_seq other = 0;
  ASSERT_EQ(kvc_seq_add(cache_.get(), 1, &other, nullptr), KVC_OK);
  std::swap(seq_, other);
  step({KVC_TREE_NONE}, {2});
  std::swap(seq_, other);
  kvc_forward f = 0;
  for (const bool only_check : {true, false}) {
    EXPECT_EQ(begin({-1, 0, 1, 2}, &f, only_check), KVC_ERROR_OUT_OF_PAGES) << "three nodes and the last";
    EXPECT_EQ(error_.required, 4);
    EXPECT_EQ(error_.available, 3);
    EXPECT_TRUE(kvc_status_is_capacity(error_.code));
  }
  uint64_t before = 0, after = 0;
  ASSERT_EQ(kvc_cache_digest(cache_.get(), &before, nullptr), KVC_OK);
  ASSERT_EQ(begin({-1, 0, 1}, &f), KVC_OK) << error_.message;
  EXPECT_EQ(used(), 5);
  ASSERT_EQ(kvc_forward_abort(cache_.get(), f, &error_), KVC_OK);
  ASSERT_EQ(kvc_cache_digest(cache_.get(), &after, nullptr), KVC_OK);
  EXPECT_EQ(before, after);
  step({-1}, {11});
  int64_t room = -1;
  ASSERT_EQ(kvc_seq_max_append(cache_.get(), 1, &seq_, &room, nullptr), KVC_OK);
  EXPECT_EQ(room, 2);
  EXPECT_EQ(begin({0, 1, 2}, &f), KVC_ERROR_OUT_OF_PAGES);
  step({0, 1}, {111, 1111});
  ASSERT_EQ(kvc_seq_max_append(cache_.get(), 1, &seq_, &room, nullptr), KVC_OK);
  EXPECT_EQ(room, 0);
  int64_t pages = 0;
  ASSERT_EQ(kvc_seq_exclusive_pages(cache_.get(), 0, 1, &seq_, &pages, nullptr), KVC_OK);
  EXPECT_EQ(pages, 4);
  const int64_t none = 1;
  ASSERT_EQ(kvc_seq_truncate(cache_.get(), 1, &seq_, &none, &error_), KVC_OK) << error_.message;
  EXPECT_EQ(used(), 2);
  EXPECT_EQ(step({KVC_TREE_NONE}, {1}), 1) << "truncate has dropped the nodes";
}

// The tensors and index arrays of a graph have the shapes of its capacity, three rows, and the batch has two.
TEST_F(DraftStates, StepsOfAGraph) {
  open();
  kvc_seq both[2] = {seq_, 0};
  ASSERT_EQ(kvc_seq_add(cache_.get(), 1, &both[1], nullptr), KVC_OK);
  kvc_graph_config graph_config;
  kvc_graph_config_init(&graph_config);
  graph_config.max_sequences = 3;
  graph_config.max_tokens = 8;
  kvc_forward graph = 0, f = 0;
  ASSERT_EQ(kvc_graph_create(cache_.get(), &graph_config, &graph, &error_), KVC_OK) << error_.message;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = both;
  batch.num_sequences = 2;
  batch.graph = graph;
  for (int round = 0; round < 3; round++) {
    const int32_t lengths[2] = {2, 3}, parents[5] = {-1, 0, -1, 0, 1}, leaves[2] = {0, 1};
    batch.append_lengths = lengths;
    batch.tree_parents = parents;
    ASSERT_EQ(kvc_forward_begin(cache_.get(), &batch, nullptr, &f, &error_), KVC_OK) << error_.message;
    for (int32_t token = -1; token < 3; token++) {
      Tensor before(DType::kF32, {3, 1}), after(DType::kF32, {3, 1});
      ASSERT_EQ(kvc_forward_load_state(cache_.get(), f, 0, 0, token, before.dl(), &error_), KVC_OK) << error_.message;
      if (token < 1) {
        EXPECT_EQ(before.at(0, 0), static_cast<float>(round > 0 ? 100 * round : 0)) << token;
        EXPECT_EQ(before.at(1, 0), static_cast<float>(round > 0 ? 100 * round + 11 : 0)) << token;
      }
      for (int row = 0; row < 2; row++) {
        after.set(row, 0, static_cast<float>(100 * (round + 1) + 10 * row + std::max(token, 0)));
      }
      ASSERT_EQ(kvc_forward_store_state(cache_.get(), f, 0, 0, token, after.dl(), &error_), KVC_OK) << error_.message;
    }
    ASSERT_EQ(kvc_forward_end(cache_.get(), graph, &error_), KVC_OK) << error_.message;
    ASSERT_EQ(kvc_seq_commit(cache_.get(), 2, both, leaves, nullptr, &error_), KVC_OK) << error_.message;
    ASSERT_EQ(kvc_cache_check_invariants(cache_.get(), &error_), KVC_OK) << error_.message;
  }
}

// Two sequences, each in an open step at its peak, use every page of the default pool.
TEST_F(DraftStates, TheDefaultPoolServesEverySequenceAtItsPeak) {
  struct Case {
    int32_t drafts, nodes;
  };
  for (const Case c : {Case{3, 64}, {3, 5}, {3, 4}, {4, 4}, {1, 64}, {0, 64}, {0, 2}, {0, 1}}) {
    SCOPED_TRACE(testing::Message() << c.drafts << " draft states, trees of " << c.nodes << " nodes");
    config_.max_sequences = 2;
    config_.max_checkpoints = 2;
    config_.max_draft_states = c.drafts;
    config_.max_tree_nodes = c.nodes;
    open();
    std::vector<int32_t>
        chain;  // the nodes of an earlier step: its last one keeps no state, if the tree has room for that
    while (c.drafts > 0 && static_cast<int32_t>(chain.size()) < std::min(c.drafts + 1, c.nodes - 1)) {
      chain.push_back(static_cast<int32_t>(chain.size()) - 1);
    }
    for (int i = 0; i < 2; i++) {
      if (i == 1) {
        ASSERT_EQ(kvc_seq_add(cache_.get(), 1, &seq_, nullptr), KVC_OK);
      }
      for (int steps = 0; steps < 3; steps++) {
        step({KVC_TREE_NONE}, {1});
        if (steps < 2) {
          ASSERT_EQ(kvc_seq_checkpoint(cache_.get(), 1, &seq_, nullptr), KVC_OK);
        }
      }
      if (!chain.empty()) step(chain, std::vector<float>(chain.size(), 2));
      kvc_forward f = 0;
      ASSERT_EQ(begin({static_cast<int32_t>(chain.size()) - 1}, &f), KVC_OK) << error_.message;
    }
    kvc_stats stats;
    kvc_stats_init(&stats);
    ASSERT_EQ(kvc_cache_stats(cache_.get(), 0, &stats, nullptr), KVC_OK);
    EXPECT_EQ(stats.pages_used, stats.pages_total);
  }
}

TEST_F(DraftStates, FreshStatesHaveTheFillValue) {
  struct Case {
    DLDataType dtype;
    double fill, wanted;
  };
  const Case cases[] = {
      {{kDLFloat, 32, 1}, -1e30, double{-1e30f}},
      {{kDLFloat, 16, 1}, -2.5, -2.5},
      {{kDLBfloat, 16, 1}, -std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()},
      {{kDLInt, 32, 1}, INT32_MIN, INT32_MIN},
      {{kDLInt, 64, 1}, 151643, 151643},
      {{kDLInt, 64, 1}, -0x1p53, -0x1p53}};
  for (const Case &c : cases) {
    state_.dtype = c.dtype;
    state_.fill = c.fill;
    state_.shape[0] = 13;  // not a multiple of any word
    open();
    kvc_forward f = 0;
    ASSERT_EQ(begin({KVC_TREE_NONE}, &f), KVC_OK) << error_.message;
    unsigned char bytes[8 * 13] = {};
    int64_t shape[2] = {1, 13};
    DLTensor t = {bytes, test_device(), 2, c.dtype, shape, nullptr, 0};
    ASSERT_EQ(kvc_forward_load_state(cache_.get(), f, 0, 0, -1, &t, &error_), KVC_OK) << error_.message;
    for (int i = 0; i < 13; i++) {
      double got = 0;
      if (c.dtype.code == kDLInt) {
        int64_t wide = 0;
        int32_t narrow = 0;
        std::memcpy(&wide, bytes + 8 * i, 8);
        std::memcpy(&narrow, bytes + 4 * i, 4);
        got = static_cast<double>(c.dtype.bits == 64 ? wide : narrow);
      } else {
        got = double{load(c.dtype.bits == 32         ? DType::kF32
                          : c.dtype.code == kDLFloat ? DType::kF16
                                                     : DType::kBF16,
                          bytes, i)};
      }
      EXPECT_EQ(got, c.wanted) << i << " of " << c.fill;
    }
    ASSERT_EQ(kvc_forward_abort(cache_.get(), f, nullptr), KVC_OK);
  }
}

TEST_F(DraftStates, ConfigsAreRefused) {
  const auto refused = [&](const std::function<void()> &change, const char *text) {
    const kvc_state_config state = state_;
    const kvc_cache_config config = config_;
    const kvc_group_config group = group_;
    change();
    kvc_cache *raw = nullptr;
    EXPECT_EQ(kvc_cache_create(context_.get(), &config_, &raw, &error_), KVC_ERROR_INVALID_ARGUMENT) << text;
    EXPECT_NE(std::strstr(error_.message, text), nullptr) << error_.message;
    state_ = state, config_ = config, group_ = group;
  };
  const DLDataType f16 = {kDLFloat, 16, 1}, i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1};
  refused([&] { state_.fill = NAN; }, "fill nan is no value of float32");
  refused([&] { state_.fill = 1e39; }, "fill 1e+39 is no value of float32");
  refused([&] { state_.dtype = f16, state_.fill = -1e30; }, "fill -1e+30 is no value of float16");
  refused([&] { state_.dtype = i32, state_.fill = 0.5; }, "fill 0.5 is no value of int32");
  refused([&] { state_.dtype = i32, state_.fill = 2147483648.0; }, "is no value of int32");
  refused([&] { state_.dtype = i64, state_.fill = 1e16; }, "is no value of int64");
  refused([&] { state_.dtype = i64, state_.fill = -INFINITY; }, "is no value of int64");
  refused([&] { config_.max_draft_states = 64; }, "max_draft_states 64 is outside 0..63");
  refused([&] { config_.max_draft_states = -1; }, "max_draft_states -1");
  refused([&] { config_.max_draft_states = 5, config_.max_tree_nodes = 4; }, "max_draft_states 5 is outside 0..4");
  refused([&] { group_.row = KVC_ROW_KV, config_.capacity_tokens = 64; }, "max_draft_states 3, and no group");
}

}  // namespace
}  // namespace kvt

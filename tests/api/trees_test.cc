// Token trees through the C API: bad input, calls that are refused while a tree is uncommitted, and queries.
#include "fixture.h"

namespace kvt {
namespace {

// A World whose first sequence (20 tokens) has a tree of 7 nodes. The sequence `bare` has 5 tokens and no tree.
struct Grown : World {
  kvc_seq bare = 0;
  Grown() : World(spec_with_trees()) {
    EXPECT_EQ(kvc_seq_add(cache, 1, &bare, nullptr), KVC_OK);
    step(bare, 5);
    grow({seq}, {7}, {-1, 0, 0, 1, 1, 2, 2});
  }
  static CacheSpec spec_with_trees() {
    CacheSpec spec = default_spec();
    spec.max_tree_nodes = 9;
    return spec;
  }
  static kvc_batch batch_of(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths,
                            const std::vector<int32_t> &parents) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    batch.tree_parents = parents.data();
    return batch;
  }
  void grow(const std::vector<kvc_seq> &seqs, const std::vector<int32_t> &lengths,
            const std::vector<int32_t> &parents) {
    const kvc_batch batch = batch_of(seqs, lengths, parents);
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    attend_all(f, static_cast<int64_t>(parents.size()));
    ASSERT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
  }
  int32_t nodes(kvc_seq s) {
    int32_t count = -1;
    EXPECT_EQ(kvc_seq_tree_nodes(cache, 1, &s, &count, nullptr), KVC_OK);
    return count;
  }
};

TEST(Trees, BatchesThatBeginRefuses) {
  Grown w;
  struct Case {
    kvc_status status;
    int64_t index;
    std::vector<int32_t> lengths, parents;  // of `bare` and of `seq`
    std::vector<std::string> mentions;
  };
  const Case cases[] = {
      {KVC_ERROR_INVALID_ARGUMENT, 0, {2, 1}, {-1, 1, 6}, {"tree_parents[1] is 1", "node 1"}},
      {KVC_ERROR_INVALID_ARGUMENT, 0, {3, 1}, {-1, 2, 0, 6}, {"tree_parents[1] is 2"}},
      {KVC_ERROR_INVALID_ARGUMENT, 1, {2, 1}, {-1, 0, 7}, {"tree_parents[2] is 7", "node 7"}},
      {KVC_ERROR_INVALID_ARGUMENT, 1, {2, 2}, {-1, 0, 6, INT32_MAX}, {std::to_string(INT32_MAX)}},
      {KVC_ERROR_INVALID_ARGUMENT, 0, {1, 1}, {INT32_MIN, 6}, {std::to_string(INT32_MIN)}},
      {KVC_ERROR_INVALID_ARGUMENT, 0, {2, 1}, {-2, 0, 6}, {"tree_parents[1] is 0", "-2"}},
      {KVC_ERROR_INVALID_ARGUMENT, 0, {2, 1}, {-1, -2, 6}, {"tree_parents[1] is -2"}},
      {KVC_ERROR_UNCOMMITTED, 1, {1, 1}, {-1, -2}, {"7 nodes"}},
      {KVC_ERROR_TREE_TOO_LARGE, 1, {1, 3}, {-1, 6, 6, 6}, {"7 + 3", "9"}},
      {KVC_ERROR_TREE_TOO_LARGE, 0, {10, 1}, {-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6}, {"0 + 10", "9"}},
  };
  for (const Case &c : cases) {
    const std::vector<kvc_seq> seqs{w.bare, w.seq};
    const kvc_batch batch = Grown::batch_of(seqs, c.lengths, c.parents);
    kvc_forward f = 0;
    const kvc_error error = refused(
        w.cache, {c.status}, "kvc_forward_begin",
        [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); }, c.mentions);
    EXPECT_EQ(error.index, c.index) << error.message;
    refused(
        w.cache, {c.status}, "kvc_cache_can_fit", [&](kvc_error *e) { return kvc_cache_can_fit(w.cache, &batch, e); },
        c.mentions);
  }
}

TEST(Trees, CommitsThatAreRefused) {
  Grown w;
  w.grow({w.forked}, {1}, {-1});
  struct Case {
    kvc_status status;
    std::vector<kvc_seq> seqs;
    std::vector<int32_t> leaves;
    std::vector<std::string> mentions;
  };
  const Case cases[] = {
      {KVC_ERROR_OUT_OF_RANGE, {w.forked, w.seq}, {0, 7}, {"leaf 7", "[-1, 7)"}},
      {KVC_ERROR_OUT_OF_RANGE, {w.forked, w.seq}, {0, -2}, {"leaf -2"}},
      {KVC_ERROR_OUT_OF_RANGE, {w.seq, w.forked}, {3, INT32_MAX}, {"[-1, 1)"}},
      {KVC_ERROR_ORDER, {w.seq, w.bare}, {3, -1}, {"no uncommitted tree"}},
      {KVC_ERROR_DUPLICATE, {w.seq, w.seq}, {3, 3}, {}},
      {KVC_ERROR_STALE_ID, {w.seq, 0}, {3, 3}, {}},
      {KVC_ERROR_STALE_ID, {w.seq, w.seq + (uint64_t{1} << 40)}, {3, 3}, {}},
  };
  for (const Case &c : cases) {
    const kvc_error error = refused(
        w.cache, {c.status}, "kvc_seq_commit",
        [&](kvc_error *e) { return kvc_seq_commit(w.cache, 2, c.seqs.data(), c.leaves.data(), nullptr, e); },
        c.mentions);
    EXPECT_EQ(error.index, 1) << error.message;
  }
  const std::vector<kvc_seq> both{w.seq, w.forked};
  const int32_t leaves[2] = {3, 0};
  for (int64_t n : {int64_t{-1}, INT64_MIN}) {
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_seq_commit",
            [&](kvc_error *e) { return kvc_seq_commit(w.cache, n, both.data(), leaves, nullptr, e); });
  }
  int stream = 0;
  refused(w.cache, {KVC_ERROR_DEVICE}, "kvc_seq_commit",
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 2, both.data(), leaves, &stream, e); });
  EXPECT_EQ(kvc_seq_commit(w.cache, 0, nullptr, nullptr, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_commit(w.cache, 2, both.data(), leaves, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(w.length(w.seq), 23);
  EXPECT_EQ(w.length(w.forked), 21);
  refused(w.cache, {KVC_ERROR_ORDER}, "kvc_seq_commit",  // twice
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 2, both.data(), leaves, nullptr, e); });
}

TEST(Trees, WhatAnUncommittedTreeRefuses) {
  Grown w;
  kvc_seq children[2] = {};
  const std::vector<kvc_seq> both{w.bare, w.seq};
  const Statuses uncommitted{KVC_ERROR_UNCOMMITTED};
  EXPECT_EQ(refused(w.cache, uncommitted, "kvc_seq_fork",
                    [&](kvc_error *e) { return kvc_seq_fork(w.cache, 2, both.data(), nullptr, children, nullptr, e); },
                    {"7 nodes"})
                .index,
            1);
  kvc_batch batch = Grown::batch_of(both, {1, 1}, {});
  const int32_t ones[2] = {1, 1};
  batch.append_lengths = ones;
  batch.tree_parents = nullptr;
  kvc_forward f = 0;
  EXPECT_EQ(refused(w.cache, uncommitted, "kvc_forward_begin",
                    [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, e); })
                .index,
            1);
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  std::vector<const DLTensor *> ks, vs;
  for (LayerTensors &t : tensors) {
    ks.push_back(t.k.dl());
    vs.push_back(t.v.dl());
  }
  kvc_import_args imports;
  kvc_import_args_init(&imports);
  imports.num_layers = 3;
  imports.k = ks.data();
  imports.v = vs.data();
  refused(w.cache, uncommitted, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &imports, nullptr, e); });
  kvc_export_args exports;
  kvc_export_args_init(&exports);
  exports.position_begin = 18;
  exports.position_end = 21;
  DLManagedTensorVersioned *k = nullptr;
  refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, w.seq, &exports, &k, nullptr, nullptr, e); }, {"20"});
  const int64_t longer = 21, whole = 20;
  refused(w.cache, {KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_truncate",
          [&](kvc_error *e) { return kvc_seq_truncate(w.cache, 1, &w.seq, &longer, e); });
  ASSERT_EQ(kvc_seq_truncate(w.cache, 1, &w.seq, &whole, nullptr), KVC_OK);  // drops the tree alone
  EXPECT_EQ(w.nodes(w.seq), 0);
  w.step(w.seq, 1);
}

TEST(Trees, InAnOpenForward) {
  Grown w;
  const std::vector<kvc_seq> seqs{w.seq, w.bare};
  const std::vector<int32_t> lengths{2, 1}, parents{6, 3, KVC_TREE_NONE};
  const kvc_batch batch = Grown::batch_of(seqs, lengths, parents);
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(w.cache, &batch, nullptr, &f, nullptr), KVC_OK);
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  ASSERT_EQ(kvc_forward_get_info(w.cache, f, &info, nullptr), KVC_OK);
  EXPECT_EQ(std::vector<int32_t>(info.positions_host, info.positions_host + 3), (std::vector<int32_t>{23, 23, 5}));
  EXPECT_EQ(std::vector<int32_t>(info.last_rows_host, info.last_rows_host + 2), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(w.nodes(w.seq), 7);
  const int32_t leaf = 0;
  refused(w.cache, {KVC_ERROR_BUSY}, "kvc_seq_commit",
          [&](kvc_error *e) { return kvc_seq_commit(w.cache, 1, &w.seq, &leaf, nullptr, e); });
  w.attend_all(f, 3);
  ASSERT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
  EXPECT_EQ(w.nodes(w.seq), 9);
  EXPECT_EQ(w.length(w.seq), 20);
  int64_t tokens = -1;
  ASSERT_EQ(kvc_seq_max_append(w.cache, 1, &w.seq, &tokens, nullptr), KVC_OK);
  EXPECT_EQ(tokens, 0);
  ASSERT_EQ(kvc_seq_remove(w.cache, 1, &w.seq, nullptr), KVC_OK);
  EXPECT_EQ(kvc_cache_check_invariants(w.cache, nullptr), KVC_OK);
}

TEST(Trees, QueriesCountCommittedTokens) {
  Grown w;
  EXPECT_EQ(w.length(w.seq), 20);
  EXPECT_EQ(w.nodes(w.seq), 7);
  int64_t count = 0;
  ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 0, nullptr, 0, &count, nullptr), KVC_OK);
  EXPECT_EQ(count, 5);
  kvc_stats before, after;
  kvc_stats_init(&before);
  kvc_stats_init(&after);
  ASSERT_EQ(kvc_cache_stats(w.cache, 0, &before, nullptr), KVC_OK);
  const int32_t none = -1;
  ASSERT_EQ(kvc_seq_commit(w.cache, 1, &w.seq, &none, nullptr, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_stats(w.cache, 0, &after, nullptr), KVC_OK);
  EXPECT_EQ(before.tokens_held, after.tokens_held);
  EXPECT_EQ(before.pages_used, after.pages_used + 2);
  EXPECT_GT(before.fragmentation_bytes, after.fragmentation_bytes);
}

TEST(Trees, ConfigsAndTheirBookkeeping) {
  ContextPtr context = make_context();
  kvc_estimate small, large;
  kvc_estimate_init(&small);
  kvc_estimate_init(&large);
  CacheSpec spec = World::default_spec();
  spec.max_tree_nodes = 1;
  const BuiltConfig least(spec);
  spec.max_tree_nodes = 1024;
  const BuiltConfig most(spec);
  ASSERT_EQ(kvc_cache_estimate(context.get(), &least.config, -1, &small, nullptr), KVC_OK);
  ASSERT_EQ(kvc_cache_estimate(context.get(), &most.config, -1, &large, nullptr), KVC_OK);
  EXPECT_GT(large.bookkeeping_bytes, small.bookkeeping_bytes);
  EXPECT_LT(large.bookkeeping_bytes, small.bookkeeping_bytes + spec.max_sequences * 2048 + 4096);
  for (int bad : {-1, 1025, INT32_MAX, INT32_MIN}) {
    spec.max_tree_nodes = bad;
    const BuiltConfig built(spec);
    refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_cache_estimate",
            [&](kvc_error *e) { return kvc_cache_estimate(context.get(), &built.config, -1, &large, e); },
            {"max_tree_nodes " + std::to_string(bad), "1..1024"});
  }
}

// The default rollback margin of a window is the size of the largest tree: as many tokens can be dropped after a
// commit.
TEST(Trees, TheMarginDefaultsToTheLargestTree) {
  ContextPtr context = make_context();
  CacheSpec spec = World::default_spec();
  spec.max_tree_nodes = 12;
  spec.page_size = 1;
  BuiltConfig built(spec);
  built.config.flags = 0;
  kvc_cache *cache = nullptr;
  ASSERT_EQ(kvc_cache_create(context.get(), &built.config, &cache, nullptr), KVC_OK);
  CachePtr owner(cache);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache, 1, &seq, nullptr), KVC_OK);
  kvc_batch batch;
  kvc_batch_init(&batch);
  const int32_t length = 30;
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
  for (int l = 0; l < 3; l++) {
    LayerTensors t(spec.layers[static_cast<size_t>(l)], length);
    const kvc_append_args args = t.append_args();
    ASSERT_EQ(kvc_forward_append(cache, f, l, &args, nullptr), KVC_OK);
  }
  ASSERT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
  int64_t before = 0, after = 0;
  ASSERT_EQ(kvc_seq_nearest_position(cache, seq, 5, &before, &after, nullptr), KVC_OK);
  EXPECT_EQ(after, 30 - 12);
}

}  // namespace
}  // namespace kvt

// Capacity outcomes: the error has the numbers of what is needed and what is available, and its place.
#include "fixture.h"

namespace kvt {
namespace {

TEST(Capacity, TooManySequences) {
  World w;  // room for 6 sequences, 2 exist
  kvc_seq seqs[8] = {};
  kvc_error e = refused(w.cache, {KVC_ERROR_TOO_MANY_SEQUENCES}, "kvc_seq_add",
                        [&](kvc_error *x) { return kvc_seq_add(w.cache, 5, seqs, x); });
  EXPECT_EQ(e.required, 5);
  EXPECT_EQ(e.available, 4);
  EXPECT_EQ(seqs[0], 0u);
  kvc_seq parents[5] = {w.seq, w.seq, w.seq, w.seq, w.forked};
  e = refused(w.cache, {KVC_ERROR_TOO_MANY_SEQUENCES}, "kvc_seq_fork",
              [&](kvc_error *x) { return kvc_seq_fork(w.cache, 5, parents, nullptr, seqs, nullptr, x); });
  EXPECT_EQ(e.required, 5);
  EXPECT_EQ(e.available, 4);
  ASSERT_EQ(kvc_seq_add(w.cache, 4, seqs, nullptr), KVC_OK);
  e = refused(w.cache, {KVC_ERROR_TOO_MANY_SEQUENCES}, "kvc_seq_add",
              [&](kvc_error *x) { return kvc_seq_add(w.cache, 1, seqs + 4, x); });
  EXPECT_EQ(e.available, 0);
}

TEST(Capacity, TooManyForwardsAndLargeBatches) {
  World w;
  kvc_seq third = 0;
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &third, nullptr), KVC_OK);
  const kvc_forward a = w.begin({w.seq}, {1}), b = w.begin({w.forked}, {1});
  int32_t length = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &third;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  kvc_error e = refused(w.cache, {KVC_ERROR_TOO_MANY_FORWARDS}, "kvc_forward_begin",
                        [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); });
  EXPECT_GT(e.required, e.available);
  refused(w.cache, {KVC_ERROR_TOO_MANY_FORWARDS}, "kvc_cache_can_fit",
          [&](kvc_error *x) { return kvc_cache_can_fit(w.cache, &batch, x); });
  EXPECT_EQ(kvc_forward_abort(w.cache, a, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_abort(w.cache, b, nullptr), KVC_OK);
  length = 33;
  e = refused(w.cache, {KVC_ERROR_BATCH_TOO_LARGE}, "kvc_forward_begin",
              [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); }, {"33", "32"});
  EXPECT_EQ(e.required, 33);
  EXPECT_EQ(e.available, 32);
  const kvc_seq rows[7] = {};
  const int32_t zeros[7] = {};
  batch.sequences = rows;
  batch.append_lengths = zeros;
  batch.num_sequences = 7;
  e = refused(w.cache, {KVC_ERROR_BATCH_TOO_LARGE}, "kvc_forward_begin",
              [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); }, {"7", "6"});
  EXPECT_EQ(e.required, 7);
  EXPECT_EQ(e.available, 6);
  batch.num_sequences = -1;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_begin",
          [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); }, {"-1"});
  // An inert row may have 0 tokens, but not fewer.
  batch.num_sequences = 1;
  length = -1;
  batch.append_lengths = &length;
  e = refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_begin",
              [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); });
  EXPECT_EQ(e.index, 0);
}

// Linux may promise memory that does not exist. It refuses 1 TiB at once, but grants the same in parts.
TEST(Capacity, WhatTheHostLacksIsRefusedInOneLayerAndInMany) {
  const ContextPtr context = make_context(1);
  for (const int layers : {1, 80}) {
    CacheSpec spec = World::default_spec();
    spec.groups = {{0, 1}};
    spec.layers.assign(static_cast<size_t>(layers), LayerSpec{0, 8, 8, 128});
    BuiltConfig built(spec);
    built.groups[0].num_pages = (int64_t{1} << 40) / (layers * 8 * 128 * 2 * 4 * spec.page_size);
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(nullptr, {KVC_ERROR_OUT_OF_MEMORY}, "kvc_cache_create", [&](kvc_error *e) {
      return kvc_cache_create(context.get(), &built.config, &cache, e);
    });
    EXPECT_EQ(cache, nullptr);
    EXPECT_GT(error.required, (int64_t{1} << 40) - (int64_t{1} << 30)) << error.message;
    EXPECT_GT(error.available, 0) << error.message;
    EXPECT_NE(std::string(error.message).find(std::to_string(error.available)), std::string::npos) << error.message;
  }
}

TEST(Capacity, OutOfPagesSaysWhichRowAndHowMany) {
  CacheSpec spec = World::default_spec();
  spec.groups = {{0, 8}, {8, 7}};  // 20 tokens take 5 pages of each group; then the window frees 3 of group 1
  World w(spec);
  kvc_seq more[2] = {};
  ASSERT_EQ(kvc_seq_add(w.cache, 2, more, nullptr), KVC_OK);
  const kvc_seq rows[3] = {more[0], 0, more[1]};
  const int32_t lengths[3] = {8, 2, 8};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = rows;
  batch.append_lengths = lengths;
  batch.num_sequences = 3;
  kvc_forward f = 0;
  const kvc_error e = refused(w.cache, {KVC_ERROR_OUT_OF_PAGES}, "kvc_forward_begin",
                              [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); });
  EXPECT_EQ(e.group, 0);
  EXPECT_EQ(e.index, 2);
  EXPECT_EQ(e.required, 4);
  EXPECT_EQ(e.available, 3);
  EXPECT_EQ(kvc_seq_remove(w.cache, 2, more, nullptr), KVC_OK);
  // A fork at a partial page copies it in both groups.
  const kvc_forward open = w.begin({w.seq}, {12});
  w.attend_all(open, 12);
  ASSERT_EQ(kvc_forward_end(w.cache, open, nullptr), KVC_OK);
  const int64_t position = 31;
  kvc_seq child = 0;
  const kvc_error fork_error = refused(w.cache, {KVC_ERROR_OUT_OF_PAGES}, "kvc_seq_fork", [&](kvc_error *x) {
    return kvc_seq_fork(w.cache, 1, &w.seq, &position, &child, nullptr, x);
  });
  EXPECT_EQ(fork_error.group, 0);
  EXPECT_EQ(fork_error.required, 1);
  EXPECT_EQ(fork_error.available, 0);
}

// Each group runs out of pages at another row. The error is that of the group that runs out first, because the rows
// before it fit.
TEST(Capacity, RowsBeforeTheOneThatDoesNotFitDo) {
  CacheSpec spec = World::default_spec();
  spec.groups = {{0, 10}, {8, 5}};  // 20 tokens leave 5 pages of group 0, and 3 of group 1 once its window has moved
  World w(spec);
  kvc_seq more[3] = {};
  ASSERT_EQ(kvc_seq_add(w.cache, 3, more, nullptr), KVC_OK);
  const int32_t lengths[3] = {8, 8, 8};
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = more;
  batch.append_lengths = lengths;
  batch.num_sequences = 3;
  kvc_forward f = 0;
  const kvc_error e = refused(w.cache, {KVC_ERROR_OUT_OF_PAGES}, "kvc_forward_begin",
                              [&](kvc_error *x) { return kvc_forward_begin(w.cache, &batch, nullptr, &f, x); });
  EXPECT_EQ(e.group, 1);
  EXPECT_EQ(e.index, 1);
  EXPECT_EQ(e.required, 6);
  EXPECT_EQ(e.available, 3);
  batch.num_sequences = static_cast<int32_t>(e.index);
  EXPECT_EQ(kvc_cache_can_fit(w.cache, &batch, nullptr), KVC_OK);
}

TEST(Capacity, ChildrenBeforeTheOneThatDoesNotFitDo) {
  CacheSpec spec = World::default_spec();
  spec.groups = {{0, 7}, {0, 6}};  // 20 tokens leave 2 pages of group 0 and 1 of group 1
  World w(spec);
  const kvc_seq parents[3] = {w.seq, w.seq, w.seq};
  const int64_t positions[3] = {19, 19, 19};
  kvc_seq children[3] = {};
  const kvc_error e = refused(w.cache, {KVC_ERROR_OUT_OF_PAGES}, "kvc_seq_fork", [&](kvc_error *x) {
    return kvc_seq_fork(w.cache, 3, parents, positions, children, nullptr, x);
  });
  EXPECT_EQ(e.group, 1);
  EXPECT_EQ(e.index, 1);
  EXPECT_EQ(e.required, 3);
  EXPECT_EQ(e.available, 1);
  EXPECT_EQ(kvc_seq_fork(w.cache, e.index, parents, positions, children, nullptr, nullptr), KVC_OK);
}

// Sizes by the rules of the header. A full group has the capacity rounded up to pages. A sliding group has
// max_sequences times the peak of a sequence, but never more than the capacity.
TEST(Capacity, DefaultSizes) {
  ContextPtr context = make_context();
  auto pages = [&](CacheSpec spec, int group, auto change) {
    BuiltConfig b(spec);
    change(b.config);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_estimate(context.get(), &b.config, group, &estimate, &error), KVC_OK) << error.message;
    return estimate;
  };
  CacheSpec spec;
  spec.page_size = 16;
  spec.max_sequences = 3;
  spec.max_batch_tokens = 100;
  spec.rollback = 10;
  spec.groups = {{0, 0}, {50, 0}};
  spec.layers = {LayerSpec{0, 4, 2, 8}, LayerSpec{1, 2, 1, 8, 6, DType::kBF16}, LayerSpec{1, 2, 2, 4}};
  auto tokens = [&](int64_t n) { return [n](kvc_cache_config &c) { c.capacity_tokens = n; }; };
  EXPECT_EQ(pages(spec, 0, tokens(1600)).num_pages, 100);
  EXPECT_EQ(pages(spec, 0, tokens(1601)).num_pages, 101);
  EXPECT_EQ(pages(spec, 0, [](kvc_cache_config &c) { c.capacity_pages = 77; }).num_pages, 77);
  // 50 + 10 + 100 tokens and a page: 10 or 11 pages and one more for alignment, times 3.
  const int64_t sliding = pages(spec, 1, tokens(1600)).num_pages;
  EXPECT_GE(sliding, 3 * 11);
  EXPECT_LE(sliding, 3 * 12);
  EXPECT_EQ(pages(spec, 1, tokens(64)).num_pages, 4) << "never more than the capacity";
  // The default margin is 64.
  const int64_t with_margin =
      pages(spec, 1, [](kvc_cache_config &c) { c.capacity_tokens = 16000, c.rollback_tokens = 0; }).num_pages;
  EXPECT_GE(with_margin, 3 * ((50 + 64 + 100) / 16 + 1));
  EXPECT_LE(with_margin, 3 * ((50 + 64 + 100) / 16 + 3));
  // Bytes.
  const kvc_estimate full = pages(spec, 0, tokens(1600)), window = pages(spec, 1, tokens(1600)),
                     all = pages(spec, -1, tokens(1600));
  EXPECT_EQ(full.token_bytes, 2 * (8 + 8) * 4);
  EXPECT_EQ(window.token_bytes, 1 * (8 + 6) * 2 + 2 * (4 + 4) * 4);
  EXPECT_EQ(full.page_bytes, full.token_bytes * 16);
  EXPECT_EQ(all.page_bytes, 0);
  EXPECT_EQ(all.num_pages, full.num_pages + window.num_pages);
  EXPECT_EQ(full.storage_bytes, full.num_pages * full.page_bytes);
  EXPECT_EQ(all.storage_bytes, full.storage_bytes + window.storage_bytes);
  EXPECT_EQ(all.token_bytes, full.token_bytes + window.token_bytes);
  EXPECT_GT(all.bookkeeping_bytes, 0);
  // capacity_bytes bounds the bytes of all pools together, and most of it is used.
  for (int64_t bytes : {20000, 100000, 1000000, 50000000}) {
    const kvc_estimate e = pages(spec, -1, [&](kvc_cache_config &c) { c.capacity_bytes = bytes; });
    EXPECT_LE(e.storage_bytes, bytes);
    EXPECT_GE(e.storage_bytes, bytes - 2 * (full.page_bytes + window.page_bytes)) << bytes;
  }
  // The cache has the sizes that were estimated.
  BuiltConfig b(spec);
  b.config.capacity_tokens = 1600;
  kvc_cache *cache = nullptr;
  ASSERT_EQ(kvc_cache_create(context.get(), &b.config, &cache, nullptr), KVC_OK);
  CachePtr owner(cache);
  kvc_stats stats;
  kvc_stats_init(&stats);
  ASSERT_EQ(kvc_cache_stats(cache, -1, &stats, nullptr), KVC_OK);
  EXPECT_EQ(stats.pages_total, all.num_pages);
  EXPECT_EQ(stats.storage_bytes, all.storage_bytes);
  EXPECT_EQ(stats.pages_free, all.num_pages);
  EXPECT_EQ(stats.pages_peak, 0);
}

// The default size of a sliding group is enough for every sequence at its peak.
TEST(Capacity, DefaultWindowPoolHoldsEverySequenceAtItsPeak) {
  CacheSpec spec;
  spec.page_size = 16;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 40;
  spec.rollback = 5;
  spec.groups = {{30, 0}};
  spec.layers = {LayerSpec{0, 1, 1, 2}};
  spec.capacity_tokens = 100000;
  World w(spec, 1, 0);
  kvc_seq more[2] = {};
  ASSERT_EQ(kvc_seq_add(w.cache, 2, more, nullptr), KVC_OK);
  for (int round = 0; round < 30; round++) {
    for (kvc_seq s : {w.seq, w.forked, more[0], more[1]}) {
      const kvc_forward f = w.begin({s}, {static_cast<int32_t>(40 - round % 3)});
      ASSERT_NE(f, 0u) << round;
      w.attend_all(f, 40 - round % 3);
      ASSERT_EQ(kvc_forward_end(w.cache, f, nullptr), KVC_OK);
    }
  }
}

}  // namespace
}  // namespace kvt

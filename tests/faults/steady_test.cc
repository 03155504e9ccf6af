// In the steady state nothing is allocated: 10,000 steps in which pages and tables grow, with forks, truncates and
// windows.
#include <gtest/gtest.h>

#include <algorithm>

#include "interpose.h"
#include "wrappers.h"

namespace kvt {
namespace {

struct Steady {
  CacheSpec spec;
  ContextPtr context;
  CachePtr owner;
  kvc_cache *cache;
  std::vector<kvc_seq> seqs;
  std::vector<int32_t> lengths;
  std::vector<Tensor> k, v, q, out;
  kvc_error error = KVC_ERROR_INIT;

  Steady(int threads, int page_size, int64_t pages, int rows, uint32_t flags = 0) {
    spec.flags = flags;
    spec.page_size = page_size;
    spec.max_sequences = rows + 8;
    spec.max_batch_tokens = 64;
    spec.rollback = 8;
    spec.groups = {{0, pages}, {40, 120 * (rows + 2)}};
    spec.layers = {
        LayerSpec{0, 4, 2, 16, 0, DType::kF32, (flags & KVC_CACHE_STREAMING) != 0 ? KVC_ROPE_ON_APPEND : KVC_ROPE_NONE},
        LayerSpec{1, 4, 2, 16, 0, DType::kBF16, KVC_ROPE_ON_APPEND}};
    context = make_context(threads);
    owner = make_cache(context.get(), spec);
    cache = owner.get();
    seqs.resize(rows);
    lengths.assign(rows, 1);
    EXPECT_EQ(kvc_seq_add(cache, rows, seqs.data(), &error), KVC_OK);
    for (const LayerSpec &l : spec.layers) {
      k.emplace_back(DType::kF32, std::vector<int64_t>{64, l.hkv, l.d});
      v.emplace_back(DType::kF32, std::vector<int64_t>{64, l.hkv, l.d});
      q.emplace_back(DType::kF32, std::vector<int64_t>{64, l.hq, l.d});
      out.emplace_back(DType::kF32, std::vector<int64_t>{64, l.hq, l.d});
      for (Tensor *t : {&k.back(), &v.back(), &q.back()}) std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
    }
  }
  // No allocation here either.
  bool step(bool attend, const int32_t *tree_parents = nullptr, kvc_forward graph = 0) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.graph = graph;
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    batch.tree_parents = tree_parents;
    kvc_forward f = 0;
    if (kvc_forward_begin(cache, &batch, nullptr, &f, &error)) return false;
    for (int l = 0; l < 2; l++) {
      if (attend) {
        kvc_attend_args args;
        kvc_attend_args_init(&args);
        args.q = q[l].dl();
        args.k = k[l].dl();
        args.v = v[l].dl();
        args.out = out[l].dl();
        if (kvc_forward_attend(cache, f, l, &args, &error)) return false;
      } else {
        kvc_append_args args;
        kvc_append_args_init(&args);
        args.k = k[l].dl();
        args.v = v[l].dl();
        if (kvc_forward_append(cache, f, l, &args, &error)) return false;
      }
    }
    return kvc_forward_end(cache, f, &error) == KVC_OK;
  }
  // The tables of a step that is aborted.
  bool tables(kvc_forward graph = 0) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.graph = graph;
    batch.sequences = seqs.data();
    batch.append_lengths = lengths.data();
    batch.num_sequences = static_cast<int32_t>(seqs.size());
    kvc_forward f = 0;
    if (kvc_forward_begin(cache, &batch, nullptr, &f, &error)) return false;
    for (int32_t group = 0; group < 2; group++) {
      kvc_tables wanted;
      kvc_tables_init(&wanted);
      if (kvc_forward_tables(cache, f, group, &wanted, &error)) return false;
    }
    return kvc_forward_abort(cache, f, &error) == KVC_OK;
  }
};

// The first large compute call starts the workers. Here it is a prefill in another cache of the context.
void start_workers(kvc_context *context) {
  CacheSpec spec;
  spec.max_batch_tokens = 512;
  spec.groups = {{0, 64}};
  spec.layers = {LayerSpec{0, 8, 2, 64}};
  CachePtr cache = make_cache(context, spec);
  kvc_seq seq = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &seq, nullptr), KVC_OK);
  const int32_t n = 512;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &n;
  batch.num_sequences = 1;
  kvc_forward f = 0;
  ASSERT_EQ(kvc_forward_begin(cache.get(), &batch, nullptr, &f, nullptr), KVC_OK);
  Tensor kv(DType::kF32, {n, 2, 64}), q(DType::kF32, {n, 8, 64}), out(DType::kF32, {n, 8, 64});
  for (Tensor *t : {&kv, &q}) std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl();
  args.k = args.v = kv.dl();
  args.out = out.dl();
  ASSERT_EQ(kvc_forward_attend(cache.get(), f, 0, &args, nullptr), KVC_OK);
}

TEST(Steady, NoAllocationInTenThousandSteps) {
  for (int threads : {1, 3}) {
    for (int page_size : {1, 4, 16}) {
      Steady s(threads, page_size, 3 * 11000 / page_size + 64, 3);
      start_workers(s.context.get());
      for (int i = 0; i < 50; i++) ASSERT_TRUE(s.step(true)) << s.error.message;  // scratch, first touches
      count_from_now();
      for (int i = 0; i < 10000; i++) {
        // Only every 97th step attends, because attention over a long context takes time and adds nothing here.
        if (!s.step(i % 97 == 0)) FAIL() << s.error.message;
      }
      const Counts c = counts();
      EXPECT_EQ(c.allocations, 0) << "threads " << threads << ", page size " << page_size;
      EXPECT_EQ(c.threads, 0);
      int64_t length = 0;
      ASSERT_EQ(kvc_seq_lengths(s.cache, 1, s.seqs.data(), &length, nullptr), KVC_OK);
      EXPECT_EQ(length, 10050);
    }
  }
}

TEST(Steady, NoAllocationInForksTruncatesAndQueries) {
  Steady s(1, 4, 4000, 3);
  auto round = [&](int i) {
    if (!s.step(i % 16 == 0)) return false;
    kvc_seq children[2] = {};
    const kvc_seq parents[2] = {s.seqs[0], s.seqs[1]};
    int64_t numbers[2] = {-1, -1};
    if (kvc_seq_fork(s.cache, 2, parents, numbers, children, nullptr, &s.error)) return false;
    if (kvc_seq_lengths(s.cache, 2, children, numbers, &s.error)) return false;
    numbers[0] = std::max<int64_t>(0, numbers[0] - 1);
    numbers[1] = std::max<int64_t>(0, numbers[1] - 2);
    if (kvc_seq_truncate(s.cache, 2, children, numbers, &s.error)) return false;
    if (kvc_seq_max_append(s.cache, 2, children, numbers, &s.error)) return false;
    std::swap(s.seqs[i % 2], children[i % 2]);
    if (kvc_seq_remove(s.cache, 2, children, &s.error)) return false;
    if (i % 500 == 499) {
      const int64_t zeros[3] = {0, 0, 0};
      if (kvc_seq_truncate(s.cache, 3, s.seqs.data(), zeros, &s.error)) return false;
    }
    return true;
  };
  for (int i = 0; i < 1000; i++) ASSERT_TRUE(round(i)) << s.error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 3000 && ok; i++) ok = round(i);
  const Counts c = counts();
  EXPECT_TRUE(ok) << s.error.message;
  EXPECT_EQ(c.allocations, 0);
  EXPECT_EQ(kvc_cache_check_invariants(s.cache, &s.error), KVC_OK) << s.error.message;
}

// Streams are endless: windows slide, holes grow, page lists get more levels. Sinks are attended with a table of their
// own.
TEST(Steady, NoAllocationInStreams) {
  for (int threads : {1, 3}) {
    Steady s(threads, 2, 200, 3, KVC_CACHE_STREAMING);
    start_workers(s.context.get());
    const int64_t sinks[3] = {3, 0, 9}, windows[3] = {20, 9, 40};
    ASSERT_EQ(kvc_seq_set_streaming(s.cache, 3, s.seqs.data(), sinks, windows, 0, &s.error), KVC_OK) << s.error.message;
    auto round = [&](int i) {
      s.lengths.assign(3, i % 50 == 0 ? 20 : 1);
      if (!s.step(true)) return false;
      if (i % 7 != 0) return true;
      int64_t lengths[3];  // a draft is rejected
      if (kvc_seq_lengths(s.cache, 3, s.seqs.data(), lengths, &s.error)) return false;
      for (int64_t &length : lengths) length -= 1;
      return kvc_seq_truncate(s.cache, 3, s.seqs.data(), lengths, &s.error) == KVC_OK;
    };
    for (int i = 0; i < 200; i++) ASSERT_TRUE(round(i)) << s.error.message;
    count_from_now();
    bool ok = true;
    for (int i = 0; i < 5000 && ok; i++) ok = round(i);
    const Counts c = counts();
    EXPECT_TRUE(ok) << s.error.message;
    EXPECT_EQ(c.allocations, 0);
    EXPECT_EQ(kvc_cache_check_invariants(s.cache, &s.error), KVC_OK) << s.error.message;
  }
}

// Forks of one prompt, and forks of these, decode together in groups.
TEST(Steady, NoAllocationInSharedPrefixes) {
  Steady s(3, 4, 4000, 9, KVC_CACHE_SHARE_ALL_PREFIXES);
  start_workers(s.context.get());
  auto round = [&](int i) {
    if (!s.step(true)) return false;
    if (i % 20 != 19) return true;
    const kvc_seq parents[] = {s.seqs[0], s.seqs[0], s.seqs[1], s.seqs[2]};
    if (kvc_seq_remove(s.cache, 4, s.seqs.data() + 3, &s.error)) return false;
    if (kvc_seq_fork(s.cache, 4, parents, nullptr, s.seqs.data() + 3, nullptr, &s.error)) return false;
    const int64_t zeros[] = {0, 0};
    return i % 100 != 99 || kvc_seq_truncate(s.cache, 2, s.seqs.data(), zeros, &s.error) == KVC_OK;
  };
  for (int i = 0; i < 200; i++) ASSERT_TRUE(round(i)) << s.error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 1000 && ok; i++) ok = round(i);
  const Counts c = counts();
  EXPECT_TRUE(ok) << s.error.message;
  EXPECT_EQ(c.allocations, 0);
  EXPECT_EQ(c.threads, 0);
}

// Speculative decoding: each sequence has a tree, then a second round, then a commit of a path. The lengths of the
// paths change.
TEST(Steady, NoAllocationInTrees) {
  Steady s(1, 4, 4000, 3);
  std::vector<int32_t> first(21), second(21), leaves(3);
  for (int i = 0; i < 21; i++) {
    first[i] = i % 7 == 0 ? KVC_TREE_ROOT : (i % 7 - 1) / 2;
    second[i] = 3 + i % 7;
  }
  auto round = [&](int i) {
    s.lengths.assign(3, 7);
    if (!s.step(i % 16 == 0, first.data()) || !s.step(false, second.data())) return false;
    for (int j = 0; j < 3; j++) leaves[j] = (i + 5 * j) % 15 - 1;
    if (kvc_seq_commit(s.cache, 3, s.seqs.data(), leaves.data(), nullptr, &s.error)) return false;
    if (i % 100 == 99) {
      const int64_t zeros[3] = {0, 0, 0};
      if (kvc_seq_truncate(s.cache, 3, s.seqs.data(), zeros, &s.error)) return false;
    }
    return true;
  };
  for (int i = 0; i < 200; i++) ASSERT_TRUE(round(i)) << s.error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 1000 && ok; i++) ok = round(i);
  const Counts c = counts();
  EXPECT_TRUE(ok) << s.error.message;
  EXPECT_EQ(c.allocations, 0);
  EXPECT_EQ(kvc_cache_check_invariants(s.cache, &s.error), KVC_OK) << s.error.message;
}

// MLA with projections: decode, a prompt, and a chunk over a past, which is computed in two parts and merged.
TEST(Steady, NoAllocationInProjectedAttends) {
  constexpr int kHeads = 4, kRow = 24, kLatent = 16, kDims = 4, kTokens = 1 + 30 + 30;
  CacheSpec spec;
  spec.max_batch_tokens = kTokens;
  spec.capacity_tokens = 4096;
  spec.layers = {LayerSpec{0, kHeads, 1, kRow}};
  spec.layers[0].latent = kLatent;
  spec.layers[0].scale = 0.3;
  ContextPtr context = make_context(2);
  CachePtr cache = make_cache(context.get(), spec);
  start_workers(context.get());
  kvc_seq seqs[3];
  ASSERT_EQ(kvc_seq_add(cache.get(), 3, seqs, nullptr), KVC_OK);
  Tensor row(DType::kF32, {kTokens, 1, kRow}), q(DType::kF32, {kTokens, kHeads, kDims + kRow - kLatent}),
      w(DType::kF32, {kHeads, kDims, kLatent}), out(DType::kF32, {kTokens, kHeads, kDims});
  for (Tensor *t : {&row, &q, &w}) std::fill(t->bytes().begin(), t->bytes().end(), uint8_t{0});
  kvc_error error = KVC_ERROR_INIT;
  const auto round = [&] {
    const int32_t lengths[] = {1, 30, 30};
    const int64_t kept[] = {5, 0, 7};
    for (int step = 0; step < 2; step++) {
      kvc_batch batch;
      kvc_batch_init(&batch);
      batch.sequences = seqs;
      batch.append_lengths = lengths;
      batch.num_sequences = 3;
      kvc_forward f = 0;
      if (kvc_forward_begin(cache.get(), &batch, nullptr, &f, &error)) return false;
      kvc_attend_args args;
      kvc_attend_args_init(&args);
      args.q = q.dl();
      args.k = row.dl();
      args.out = out.dl();
      args.w_uk = args.w_uv = w.dl();
      if (kvc_forward_attend(cache.get(), f, 0, &args, &error)) return false;
      if (kvc_forward_end(cache.get(), f, &error)) return false;
    }
    int64_t lengths_now[3];
    if (kvc_seq_lengths(cache.get(), 3, seqs, lengths_now, &error)) return false;
    for (int i = 0; i < 3; i++) lengths_now[i] = std::min(lengths_now[i], kept[i]);
    return kvc_seq_truncate(cache.get(), 3, seqs, lengths_now, &error) == KVC_OK;
  };
  for (int i = 0; i < 20; i++) ASSERT_TRUE(round()) << error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 200 && ok; i++) ok = round();
  const Counts c = counts();
  EXPECT_TRUE(ok) << error.message;
  EXPECT_EQ(c.allocations, 0);
}

// Tables for other kernels: of forwards, and of plans. Nothing is allocated after the first step of a size.
TEST(Steady, TablesOfForwards) {
  Steady s(1, 4, 4000, 3);
  const auto round = [&] { return s.tables(); };
  for (int i = 0; i < 30; i++) ASSERT_TRUE(s.step(true));
  for (int i = 0; i < 3; i++) ASSERT_TRUE(round()) << s.error.message;  // the first time in each Forward object
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 1000 && ok; i++) ok = round();
  const Counts c = counts();
  EXPECT_TRUE(ok) << s.error.message;
  EXPECT_EQ(c.allocations, 0);
}

// A graph has all its memory from its creation on. Its tables have theirs from the first request on, for all later
// steps.
TEST(Steady, GraphsOfAnyLength) {
  Steady s(1, 4, 4000, 3);
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  kvc_forward graph = 0;
  ASSERT_EQ(kvc_graph_create(s.cache, &config, &graph, &s.error), KVC_OK) << s.error.message;
  const auto round = [&] { return s.tables(graph) && s.step(true, nullptr, graph); };
  for (int i = 0; i < 2; i++) ASSERT_TRUE(round()) << s.error.message;
  count_from_now();
  bool ok = true;
  for (int i = 0; i < 3000 && ok; i++) {  // across pages and table growth
    s.lengths[1] = 1 + i % 3;
    ok = round();
  }
  const Counts c = counts();
  EXPECT_TRUE(ok) << s.error.message;
  EXPECT_EQ(c.allocations, 0);
}

TEST(Steady, Plans) {
  ContextPtr context = make_context(1);
  std::vector<int32_t> pages(64 * 40), lengths(64, 100), fresh(64, 9), parents(64 * 5);
  for (size_t i = 0; i < parents.size(); i++) parents[i] = static_cast<int32_t>(i % 5) / 2 - 1;
  int64_t rows = 64, table_shape[] = {64, 40}, nodes = 64 * 5;
  const auto tensor = [](std::vector<int32_t> &values, int32_t ndim, int64_t *shape) {
    return DLTensor{values.data(), {kDLCPU, 0}, ndim, {kDLInt, 32, 1}, shape, nullptr, 0};
  };
  const DLTensor seq_lens = tensor(lengths, 1, &rows), appends = tensor(fresh, 1, &rows),
                 table = tensor(pages, 2, table_shape), trees = tensor(parents, 1, &nodes);
  for (int32_t mode = KVC_PLAN_DECODE; mode <= KVC_PLAN_DRAFT_DECODE; mode++) {
    kvc_plan_config config;
    kvc_plan_config_init(&config);
    config.mode = mode;
    config.page_size = 4;
    config.chunk_tokens = mode == KVC_PLAN_EXTEND ? 7 : 0;
    config.num_draft_tokens = mode == KVC_PLAN_VERIFY ? 5 : 0;
    config.num_steps = config.top_k = mode == KVC_PLAN_DRAFT_DECODE ? 3 : 0;
    kvc_plan *plan = nullptr;
    ASSERT_EQ(kvc_plan_create(context.get(), &config, &plan, nullptr), KVC_OK);
    kvc_plan_args args;
    kvc_plan_args_init(&args);
    args.seq_lens = &seq_lens;
    args.block_table = &table;
    args.append_lengths = mode == KVC_PLAN_EXTEND ? &appends : nullptr;
    args.tree_parents = mode == KVC_PLAN_VERIFY ? &trees : nullptr;
    bool ok = true;
    Counts c = {};
    for (int round = 0; round < 2; round++) {  // the same sizes again
      count_from_now();
      for (int i = 0; i < 100 && ok; i++) {
        lengths[static_cast<size_t>(i) % 64] = i % 100;
        ok = kvc_plan_build(plan, &args, nullptr, nullptr, nullptr) == KVC_OK;
      }
      c = counts();
      std::fill(lengths.begin(), lengths.end(), 100);
    }
    EXPECT_TRUE(ok);
    EXPECT_EQ(c.allocations, 0) << "mode " << mode;
    kvc_plan_destroy(plan);
  }
}

}  // namespace
}  // namespace kvt

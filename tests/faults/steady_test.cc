// Steady state allocates nothing: 10,000 steps that cross page and table growth, forks, truncates and windows.
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

  Steady(int threads, int page_size, int64_t pages, int rows) {
    spec.page_size = page_size;
    spec.max_sequences = rows + 8;
    spec.max_batch_tokens = 64;
    spec.rollback = 8;
    spec.groups = {{0, pages}, {40, 120 * (rows + 2)}};
    spec.layers = {LayerSpec{0, 4, 2, 16}, LayerSpec{1, 4, 2, 16, 0, DType::kBF16, KVC_ROPE_ON_APPEND}};
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
  bool step(bool attend, const int32_t *tree_parents = nullptr) {
    kvc_batch batch;
    kvc_batch_init(&batch);
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
};

// Workers start with the first compute call that is large enough: a prefill in another cache of the context.
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
        // Attention over all of a long context would only take time: every 97th step.
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

// Speculative decoding: a tree a sequence, a second round, a commit of paths of changing lengths.
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

}  // namespace
}  // namespace kvt

// Forks need little memory, for bookkeeping alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "wrappers.h"

namespace kvt {
namespace {

int64_t resident_bytes() {
  long size = 0, resident = 0;
  FILE *file = std::fopen("/proc/self/statm", "r");
  if (!file) return -1;
  if (std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = -1;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

void append_all(kvc_cache *cache, kvc_seq seq, int64_t tokens, int64_t chunk) {
  Tensor kv(DType::kF32, {chunk, 1, 1});
  std::fill(kv.bytes().begin(), kv.bytes().end(), uint8_t{0});
  for (int64_t at = 0; at < tokens; at += chunk) {
    const int32_t n = static_cast<int32_t>(std::min(chunk, tokens - at));
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &seq;
    batch.append_lengths = &n;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, &error), KVC_OK) << error.message;
    kvc_append_args args;
    kvc_append_args_init(&args);
    args.k = args.v = kv.dl();
    ASSERT_EQ(kvc_forward_append(cache, f, 0, &args, &error), KVC_OK) << error.message;
    ASSERT_EQ(kvc_forward_end(cache, f, &error), KVC_OK) << error.message;
  }
}

class Forks : public testing::TestWithParam<int> {};

TEST_P(Forks, A128kSequenceForked256TimesCostsKibibytes) {
  const int page = GetParam();
  const int64_t tokens = 131072;
  CacheSpec spec;
  spec.page_size = page;
  spec.max_sequences = 600;
  spec.max_batch_tokens = 8192;
  spec.layers = {LayerSpec{0, 1, 1, 1}};
  spec.groups = {{0, tokens / page + 512}};
  ContextPtr context = make_context();
  BuiltConfig built(spec);
  kvc_error error = KVC_ERROR_INIT;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  ASSERT_EQ(kvc_cache_estimate(context.get(), &built.config, -1, &estimate, &error), KVC_OK) << error.message;
  EXPECT_LE(estimate.bookkeeping_bytes, 16 * estimate.num_pages + 1024 * spec.max_sequences + 65536);
  CachePtr cache = make_cache(context.get(), spec);
  kvc_seq parent = 0;
  ASSERT_EQ(kvc_seq_add(cache.get(), 1, &parent, &error), KVC_OK);
  append_all(cache.get(), parent, tokens, 8192);

  // The first fork is not measured, because it touches code and tables that all forks use.
  kvc_seq first = 0;
  ASSERT_EQ(kvc_seq_fork(cache.get(), 1, &parent, nullptr, &first, nullptr, &error), KVC_OK) << error.message;
  const int64_t before = resident_bytes();
  std::vector<kvc_seq> parents(256, parent), children(256);
  for (int i = 0; i < 255; i++) {
    ASSERT_EQ(kvc_seq_fork(cache.get(), 1, &parents[i], nullptr, &children[i], nullptr, &error), KVC_OK)
        << error.message;
  }
  const int64_t grown = resident_bytes() - before;
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Debug builds audit after every call, and sanitizers keep freed memory, so their memory says nothing about forks.
  EXPECT_LT(grown, 512 * 1024) << "bytes for 255 forks";
#endif
  RecordProperty("bytes_for_255_forks", std::to_string(grown));

  kvc_stats stats;
  kvc_stats_init(&stats);
  ASSERT_EQ(kvc_cache_stats(cache.get(), 0, &stats, &error), KVC_OK);
  EXPECT_EQ(stats.pages_used, tokens / page);
  EXPECT_EQ(stats.pages_shared, tokens / page);
  EXPECT_EQ(stats.tokens_held, tokens);
  EXPECT_EQ(stats.tokens_logical, tokens * 257);
  EXPECT_EQ(stats.num_sequences, 257);
  ASSERT_EQ(kvc_cache_check_invariants(cache.get(), &error), KVC_OK) << error.message;

  // Each fork continues alone, and takes one page.
  for (int i = 0; i < 255; i += 5) append_all(cache.get(), children[i], 1, 1);
  ASSERT_EQ(kvc_cache_stats(cache.get(), 0, &stats, &error), KVC_OK);
  EXPECT_EQ(stats.pages_used, tokens / page + 51);
  ASSERT_EQ(kvc_seq_remove(cache.get(), 1, &parent, &error), KVC_OK);
  ASSERT_EQ(kvc_seq_remove(cache.get(), 255, children.data(), &error), KVC_OK);
  ASSERT_EQ(kvc_cache_stats(cache.get(), 0, &stats, &error), KVC_OK);
  EXPECT_EQ(stats.pages_used, tokens / page);
  ASSERT_EQ(kvc_seq_remove(cache.get(), 1, &first, &error), KVC_OK);
  ASSERT_EQ(kvc_cache_stats(cache.get(), 0, &stats, &error), KVC_OK);
  EXPECT_EQ(stats.pages_used, 0);
  ASSERT_EQ(kvc_cache_check_invariants(cache.get(), &error), KVC_OK) << error.message;
}

INSTANTIATE_TEST_SUITE_P(Pages, Forks, testing::Values(1, 16));

}  // namespace
}  // namespace kvt

// The model's random operations with kernels: thread counts, SIMD targets, a host's pool.
#include <gtest/gtest.h>

#include "driver.h"

namespace kvt {
namespace {

// Attention with every thread count and every SIMD target. Batches are large enough to be divided among threads.
CacheSpec larger_spec(int page_size, DType dtype, int rope) {
  CacheSpec spec;
  spec.page_size = page_size;
  spec.max_sequences = 8;
  spec.max_batch_tokens = 96;
  spec.rollback = 8;
  spec.groups = {{0, 1500 / page_size}, {20, 1000 / page_size}};
  spec.layers.clear();
  for (int i = 0; i < 2; i++) {
    LayerSpec l;
    l.group = i;
    l.hq = 6;
    l.hkv = i ? 1 : 2;
    l.d = i ? 32 : is_packed(dtype) ? 48 : 18;
    l.dv = i ? 0 : is_packed(dtype) ? 16 : 33;
    l.dtype = dtype;
    if (has_head_scales(dtype)) l.num_scales = l.hkv;
    l.rope = rope;
    spec.layers.push_back(l);
  }
  return spec;
}

// The same with chunks, latent rows, encoder sequences, a layer that reads another's K and V, and streaming windows.
CacheSpec mixed_spec(int page_size, DType dtype, int rope) {
  CacheSpec spec = larger_spec(page_size, dtype, rope);
  spec.streaming = true;
  const int64_t pages = 1000 / page_size;
  spec.groups.push_back({0, pages, 24});
  spec.groups.push_back({0, pages});
  spec.groups.push_back({0, pages, 0, true});
  spec.groups.push_back({24, pages});
  const int unit = is_packed(dtype) ? 16 : 4;
  LayerSpec chunked{2, 4, 2, 16, 0, dtype, rope}, latent{3, 5, 1, 32 + 2 * unit, 0, dtype, rope},
      cross{4, 4, 4, 3 * unit, 0, dtype};
  latent.latent = 32;
  latent.scale = 0.2;
  LayerSpec latent_window = latent;
  latent_window.group = 5;
  for (LayerSpec *l : {&chunked, &latent, &cross, &latent_window}) {
    l->num_scales = spec.layers[0].num_scales ? l->hkv : 0;
    spec.layers.push_back(*l);
  }
  LayerSpec reader = spec.layers[0];
  reader.kv_layer = 0;
  reader.hq = 2;
  reader.num_scales = 0;
  spec.layers.push_back(reader);
  return spec;
}

class Threads : public testing::TestWithParam<int> {};
TEST_P(Threads, AttentionIsRight) {
  Options options;
  options.threads = GetParam();
  options.seed = static_cast<uint64_t>(GetParam());
  const DType types[] = {DType::kF32,  DType::kF16, DType::kBF16, DType::kE4M3,
                         DType::kE5M2, DType::kI8,  DType::kU4,   DType::kE2M1};
  const std::string mismatch = mismatch_of([&] {
    CacheSpec spec = mixed_spec(GetParam() % 2 ? 16 : 3, types[GetParam() % 8], GetParam() % 3);
    const uint32_t flags[] = {0, KVC_CACHE_SHARE_ALL_PREFIXES, KVC_CACHE_SHARE_ALL_PREFIXES, KVC_CACHE_DETERMINISTIC};
    spec.flags |= flags[GetParam() % 4];
    Driver driver(spec, options);
    driver.run(120);
  });
  EXPECT_EQ(mismatch, "");
}
INSTANTIATE_TEST_SUITE_P(Counts, Threads, testing::Range(1, 18));

TEST(Simd, EveryTargetIsRight) {
  std::vector<std::string> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  targets.push_back("reference");
  for (const std::string &target : targets) {
    for (DType dtype :
         {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8, DType::kU4, DType::kE2M1}) {
      Options options;
      options.simd = target.c_str();
      options.seed = 99 + static_cast<uint64_t>(dtype);
      const std::string mismatch = mismatch_of([&] {
        CacheSpec spec = larger_spec(16, dtype, KVC_ROPE_ON_APPEND);
        spec.flags |= KVC_CACHE_SHARE_ALL_PREFIXES;
        Driver driver(spec, options);
        driver.run(150);
      });
      EXPECT_EQ(mismatch, "") << target << " " << name_of(dtype);
      const std::string on_read = mismatch_of([&] {
        Driver driver(larger_spec(16, dtype, KVC_ROPE_ON_READ), options);
        driver.run(150);
      });
      EXPECT_EQ(on_read, "") << target << " " << name_of(dtype) << ", RoPE on read";
    }
  }
}

TEST(HostPool, RandomOrderAndThreads) {
  for (int threads : {1, 2, 5}) {
    RandomPool pool(threads, 5);
    Options options;
    options.threads = threads;
    options.parallel_for = &RandomPool::run;
    options.parallel_for_user = &pool;
    options.seed = 31 + static_cast<uint64_t>(threads);
    const std::string mismatch = mismatch_of([&] {
      Driver driver(larger_spec(16, DType::kF32, KVC_ROPE_NONE), options);
      driver.run(200);
    });
    EXPECT_EQ(mismatch, "") << threads;
  }
}

}  // namespace
}  // namespace kvt

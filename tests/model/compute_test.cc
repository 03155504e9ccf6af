// The model's random operations with kernels: thread counts, SIMD targets, a host's pool.
#include <gtest/gtest.h>

#include "driver.h"

namespace kvt {
namespace {

// Attention of every thread count and every SIMD target, with batches large enough to be shared out.
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
    l.d = i ? 32 : 18;
    l.dv = i ? 0 : 33;
    l.dtype = dtype;
    if (dtype == DType::kE4M3 || dtype == DType::kE5M2) l.num_scales = l.hkv;
    l.rope = rope;
    spec.layers.push_back(l);
  }
  return spec;
}

class Threads : public testing::TestWithParam<int> {};
TEST_P(Threads, AttentionIsRight) {
  Options options;
  options.threads = GetParam();
  options.seed = static_cast<uint64_t>(GetParam());
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8};
  const std::string mismatch = mismatch_of([&] {
    CacheSpec spec = larger_spec(GetParam() % 2 ? 16 : 3, types[GetParam() % 6], GetParam() % 2);
    if (GetParam() % 3 != 0) spec.flags |= KVC_CACHE_SHARE_ALL_PREFIXES;
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
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8}) {
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

// examples/tier_memory.c and tier_memory.rs, loaded as plug-ins. They follow the rules of the table, as the disk tier
// does.
#include <dlfcn.h>

#include <vector>

#include "tier_driver.h"

namespace {

using namespace kvt;

struct Example {
  const char *language, *file;
};

class ExampleTier : public ::testing::TestWithParam<Example> {};

std::vector<Example> examples() {
  std::vector<Example> all = {{"C", EXAMPLE_TIER}};
#ifdef EXAMPLE_TIER_RUST
  all.push_back({"Rust", EXAMPLE_TIER_RUST});
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(In, ExampleTier, ::testing::ValuesIn(examples()),
                         [](const auto &info) { return std::string(info.param.language); });

kvc_tier_open_fn load_example(const Example &example) {
  void *plugin = dlopen(example.file, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(plugin, nullptr) << dlerror();
  return plugin ? reinterpret_cast<kvc_tier_open_fn>(dlsym(plugin, "kvc_tier_open")) : nullptr;
}

kvc_tier open_example(const Example &example) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(load_example(example)(KVC_TIER_VERSION, "", &tier, &error), KVC_OK) << error.message;
  return tier;
}

TEST_P(ExampleTier, StoresLoadsAndRemoves) {
  TierDriver tier(open_example(GetParam()));
  for (const size_t bytes : {0, 1, 5000, 100000}) {
    EXPECT_FALSE(tier.has(bytes));
    ASSERT_EQ(tier.store(bytes, payload_of(bytes, 0, bytes + 1)), KVC_TIER_OK);
    ASSERT_EQ(tier.store(bytes, payload_of(bytes, 1, bytes)), KVC_TIER_OK);  // replaces it
    EXPECT_EQ(tier.lookup(bytes).bytes, static_cast<int64_t>(bytes));
    Bytes loaded(bytes, 'x'), other(bytes + 1, 'x');
    EXPECT_EQ(tier.load(bytes, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(bytes, 1, bytes));
    EXPECT_EQ(tier.load(bytes, &other), KVC_TIER_MISS);
  }
  EXPECT_EQ(tier.stats().objects, 4);
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.stats().misses, 5);
  EXPECT_EQ(tier.stats().open_items, 0);
}

TEST_P(ExampleTier, ForgetsTheOldestWhenFull) {
  TierDriver tier(open_example(GetParam()));
  for (uint64_t i = 0; i < 1030; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 10)), KVC_TIER_OK);
  for (uint64_t i = 0; i < 1030; ++i) EXPECT_EQ(tier.has(i), i >= 6) << i;
  EXPECT_EQ(tier.stats().evictions, 6);
}

TEST_P(ExampleTier, FullQueueIsRefusedWhole) {
  TierDriver tier(open_example(GetParam()));
  const kvc_tier &t = tier.table();
  std::vector<kvc_tier_item> items(257, kvc_tier_item{key_of(1), nullptr, 0, 0, 0});
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(t.store(t.self, 1, 257, items.data(), &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_BATCH_TOO_LARGE);
  EXPECT_EQ(t.store(t.self, 1, 200, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(t.store(t.self, 2, 57, items.data(), &error), KVC_TIER_RETRY);
  EXPECT_EQ(t.store(t.self, 3, 56, items.data(), &error), KVC_TIER_OK);
  const auto done = tier.wait(256);
  EXPECT_EQ(done[0].job, 1u);
  EXPECT_EQ(done[255].job, 3u);
  EXPECT_EQ(done[255].index, 55);
}

TEST_P(ExampleTier, AnotherVersionIsRefused) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(load_example(GetParam())(KVC_TIER_VERSION + 1, "", &tier, &error), KVC_ERROR_UNSUPPORTED);
  EXPECT_STREQ(error.message, "version 3 of the table, and this tier has 2");
}

}  // namespace

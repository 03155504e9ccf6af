// Tiers in the process's memory, alone and above a folder.
#include "tiers_fixture.h"

namespace kvt {
namespace {

constexpr int64_t kManyBytes = int64_t{64} << 20;

TEST(HostTierOfACache, EvictedPagesAreLoaded) {
  TieredSpec spec;
  spec.groups = {{KVC_ROW_KV, 0}, {KVC_ROW_KV, 6}, {KVC_ROW_STATE, 0}};
  TieredEngine engine{spec};
  ASSERT_EQ(engine.add_host(kManyBytes), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt, 0, 0, {16});
  engine.wait_stored();
  EXPECT_EQ(engine.traffic().num_tiers, 1);
  EXPECT_GT(engine.traffic().pages_stored, 8);
  EXPECT_EQ(engine.traffic().pages_not_stored, 0);
  engine.forget_all();
  EXPECT_EQ(engine.load(count_to(40)), 32);
  EXPECT_EQ(engine.serve(count_to(40)).tokens, 32);
}

// Objects take a block each here, so the host tier holds 6 pages of 8. The folder has all of them.
TEST(HostTierOfACache, WhatItEvictsIsFoundInTheTierBelow) {
  const Folder folder;
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(6 * 4096), KVC_OK);
  ASSERT_EQ(engine.add(folder), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt);
  engine.wait_stored();
  EXPECT_EQ(engine.traffic().pages_stored, 16);
  engine.forget_all();
  EXPECT_EQ(engine.load(prompt), 32);
  EXPECT_EQ(engine.serve(prompt).tokens, 31);
  EXPECT_EQ(engine.traffic().pages_not_loaded, 0);
}

// Without the folder, the first pages are missing, so nothing can be served.
TEST(HostTierOfACache, AloneItForgetsTheOldest) {
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(6 * 4096), KVC_OK);
  const Tokens prompt = count_to(32);
  engine.serve(prompt);
  engine.wait_stored();
  engine.forget_all();
  EXPECT_EQ(engine.start(prompt), 0u);
  EXPECT_EQ(engine.serve(prompt).tokens, 0);
}

// A load from the tier below is followed by a store in the tier above, once the prefix is published again.
TEST(HostTierOfACache, APublishFillsTheTierAbove) {
  const Folder folder;
  const Tokens prompt = count_to(32);
  {
    TieredEngine engine{TieredSpec{}};
    ASSERT_EQ(engine.add(folder), KVC_OK);
    engine.serve(prompt);
    engine.wait_stored();
  }
  TieredEngine engine{TieredSpec{}};
  ASSERT_EQ(engine.add_host(kManyBytes), KVC_OK);
  ASSERT_EQ(engine.add(folder), KVC_OK);
  EXPECT_EQ(engine.load(prompt), 32);
  EXPECT_EQ(engine.serve(prompt).tokens, 31);
  engine.wait_stored();
  EXPECT_EQ(engine.traffic().pages_stored, 8);
  for (const auto &entry : std::filesystem::directory_iterator(folder.path)) {
    if (entry.is_directory()) std::filesystem::remove_all(entry.path());
  }
  engine.forget_all();
  EXPECT_EQ(engine.load(prompt), 32);
}

}  // namespace
}  // namespace kvt

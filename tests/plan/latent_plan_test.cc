#include "plan/latent_plan.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

constexpr LatentShape kDeepSeek = {576, 512, 128, 128};

TEST(LatentPlan, DecodeIsAbsorbed) {
  for (int64_t past : {0, 1, 100, 100000}) EXPECT_FALSE(decompresses(kDeepSeek, 1, past));
  for (int64_t drafts : {2, 8, 64}) EXPECT_FALSE(decompresses(kDeepSeek, drafts, 1000));
}

TEST(LatentPlan, APromptIsDecompressed) {
  for (int64_t tokens : {2, 16, 512, 100000}) EXPECT_TRUE(decompresses(kDeepSeek, tokens, 0));
}

// Over a past, rows are decompressed when pairs * (1088 - 320) exceeds tokens * 256 * 512.
TEST(LatentPlan, ChunksOverAPastWhenTheyAreLong) {
  EXPECT_FALSE(decompresses(kDeepSeek, 340, 1));
  EXPECT_TRUE(decompresses(kDeepSeek, 341, 1));
  EXPECT_TRUE(decompresses(kDeepSeek, 2048, 100000));
}

TEST(LatentPlan, NeverWhereItSavesNothing) {
  const LatentShape wide = {72, 64, 64, 72};
  EXPECT_FALSE(decompresses(wide, 1000, 0));
}

TEST(LatentPlan, HeadsFitTheScratch) {
  EXPECT_EQ(latent_heads_at_once(128, 10, 1280), 128);
  EXPECT_EQ(latent_heads_at_once(128, 10, 1279), 64);
  EXPECT_EQ(latent_heads_at_once(7, 10, 30), 2);
  EXPECT_EQ(latent_heads_at_once(5, 10, 1), 1);
  for (int64_t tokens : {1, 2048, 1 << 20}) {
    const LatentShape widest = {1024, 1000, kMaxProjectedDims, kMaxProjectedDims};
    const int64_t bytes = latent_scratch_bytes(widest.row_dims, widest.latent_dims, tokens);
    EXPECT_GE(bytes, latent_head_bytes(widest, tokens, 4) + tokens * widest.row_dims * 4);
    EXPECT_GE(bytes, int64_t{64} << 20);
  }
}

}  // namespace
}  // namespace kvc

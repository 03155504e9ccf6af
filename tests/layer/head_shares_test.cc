// Shares of heads: every head of every receiver comes from one sender that has it.
#include "layer/head_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvc {
namespace {

TEST(HeadShares, RanksHaveConsecutiveHeads) {
  const auto range = [](int32_t total, int32_t rank, int32_t size) {
    const HeadRange heads = heads_of_rank(total, {rank, size});
    return std::vector<int32_t>{heads.first, heads.count};
  };
  EXPECT_EQ(range(8, 0, 1), (std::vector<int32_t>{0, 8}));
  EXPECT_EQ(range(8, 3, 4), (std::vector<int32_t>{6, 2}));
  EXPECT_EQ(range(2, 1, 4), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(range(2, 2, 4), (std::vector<int32_t>{1, 1}));
  EXPECT_EQ(range(1, 5, 8), (std::vector<int32_t>{0, 1}));
  EXPECT_FALSE(can_share_heads(3, 2));
  EXPECT_FALSE(can_share_heads(2, 3));
  EXPECT_TRUE(can_share_heads(3, 6));
}

TEST(HeadShares, EveryHeadComesFromOneSender) {
  int64_t checked = 0;
  for (int32_t total = 1; total <= 12; ++total) {
    for (int32_t senders = 1; senders <= 24; ++senders) {
      for (int32_t receivers = 1; receivers <= 24; ++receivers) {
        if (!can_share_heads(total, senders) || !can_share_heads(total, receivers)) continue;
        for (int32_t r = 0; r < receivers; ++r) {
          const HeadRange needed = heads_of_rank(total, {r, receivers});
          std::vector<int> got(static_cast<size_t>(total));
          for (int32_t s = 0; s < senders; ++s) {
            const HeadRange has = heads_of_rank(total, {s, senders});
            const HeadRange sent = sent_heads(total, {s, senders}, {r, receivers});
            for (int32_t h = sent.first; h < sent.first + sent.count; ++h) {
              ASSERT_TRUE(h >= has.first && h < has.first + has.count) << "sender " << s << " lacks head " << h;
              ++got[static_cast<size_t>(h)];
            }
            if (senders == receivers) {
              ASSERT_EQ(sent.count, s == r ? needed.count : 0);
            }
          }
          for (int32_t h = 0; h < total; ++h) {
            const bool is_needed = h >= needed.first && h < needed.first + needed.count;
            ASSERT_EQ(got[static_cast<size_t>(h)], is_needed ? 1 : 0)
                << "head " << h << " of " << total << " at receiver " << r << " of " << receivers << ", " << senders
                << " senders";
          }
          ++checked;
        }
      }
    }
  }
  EXPECT_GT(checked, 5000);
}

}  // namespace
}  // namespace kvc

// The cost model: it decides when rows attend to a shared prefix together.
#include "plan/prefix_cost.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

// `rows` decoding sequences at 32/8 heads, D 128, bf16.
PrefixCase decode(int32_t rows, int64_t keys) {
  PrefixCase prefix;
  prefix.rows = prefix.queries = rows;
  prefix.keys = keys;
  prefix.group_size = 4;
  prefix.head_dim = prefix.v_head_dim = 128;
  prefix.key_bytes = 512;
  return prefix;
}

TEST(PrefixCost, LongPrefixesOfManyRowsPay) {
  EXPECT_TRUE(sharing_pays(decode(16, 8192)));
  EXPECT_TRUE(sharing_pays(decode(256, 512)));
  EXPECT_TRUE(sharing_pays(decode(2, 8192)));
}

TEST(PrefixCost, AloneOrOverAFewKeysItDoesNot) {
  EXPECT_FALSE(sharing_pays(decode(1, 100000)));
  EXPECT_FALSE(sharing_pays(decode(2, 16)));
  EXPECT_FALSE(sharing_pays(decode(16, 0)));
}

TEST(PrefixCost, ALittleLessIsNoReasonToChangeThePlan) {
  EXPECT_LT(cost_together(decode(2, 100)), cost_apart(decode(2, 100)));
  EXPECT_FALSE(sharing_pays(decode(2, 100)));
}

// Sharing pays more with more rows and more keys, and earlier if a state is merged anyway.
TEST(PrefixCost, GrowsWithRowsAndKeys) {
  for (int32_t rows = 2; rows < 64; rows *= 2) {
    for (int64_t keys = 16; keys < 4096; keys *= 2) {
      const PrefixCase now = decode(rows, keys);
      if (!sharing_pays(now)) continue;
      EXPECT_TRUE(sharing_pays(decode(rows, 2 * keys))) << rows << " " << keys;
      EXPECT_TRUE(sharing_pays(decode(2 * rows, keys))) << rows << " " << keys;
      PrefixCase nested = now;
      nested.nested = true;
      EXPECT_TRUE(sharing_pays(nested));
      EXPECT_LT(cost_together(nested), cost_together(now));
      EXPECT_EQ(cost_apart(nested), cost_apart(now));
    }
  }
}

// Rows with many queries keep the CPU busy. Reading their prefix once saves little, and they have many states.
TEST(PrefixCost, RowsThatComputeGainLittle) {
  PrefixCase prefix = decode(2, 64);
  EXPECT_FALSE(sharing_pays(prefix));
  prefix.queries = 16;
  EXPECT_FALSE(sharing_pays(prefix));
  PrefixCase one_head_each = decode(2, 8192);
  one_head_each.group_size = 1;
  const double decode_gain = cost_apart(one_head_each) / cost_together(one_head_each);
  one_head_each.queries = 200;
  EXPECT_LT(cost_apart(one_head_each) / cost_together(one_head_each), decode_gain);
}

}  // namespace
}  // namespace kvc

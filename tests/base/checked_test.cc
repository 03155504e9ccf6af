#include "base/checked.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

TEST(Checked, SeesOverflow) {
  int64_t out = 0;
  EXPECT_TRUE(checked_mul(INT64_MAX / 2, 2, &out));
  EXPECT_EQ(out, INT64_MAX - 1);
  EXPECT_FALSE(checked_mul(INT64_MAX / 2 + 1, 2, &out));
  EXPECT_TRUE(checked_add(INT64_MAX - 1, 1, &out));
  EXPECT_FALSE(checked_add(INT64_MAX, 1, &out));
}

TEST(Checked, CeilDivAtTheLimits) {
  EXPECT_EQ(ceil_div(0, 16), 0);
  EXPECT_EQ(ceil_div(16, 16), 1);
  EXPECT_EQ(ceil_div(17, 16), 2);
  EXPECT_EQ(ceil_div(INT64_MAX, 1), INT64_MAX);
  EXPECT_EQ(ceil_div(INT64_MAX, 2), INT64_MAX / 2 + 1);
}

}  // namespace
}  // namespace kvc

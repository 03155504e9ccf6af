// Assertions as release builds have them, whatever this build is.
#undef KVCACHE_ASSERTIONS
#include <gtest/gtest.h>

#include "base/assert.h"

namespace kvc {
namespace {

TEST(NoAssert, EvaluatesNothing) {
  int evaluated = 0;
  KVC_ASSERT(++evaluated < 0, ++evaluated, ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

}  // namespace
}  // namespace kvc

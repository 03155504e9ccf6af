// Assertions as debug builds have them, whatever this build is.
#ifndef KVCACHE_ASSERTIONS
#define KVCACHE_ASSERTIONS
#endif
#include "base/assert.h"

#include <gtest/gtest.h>

namespace kvc {
namespace {

TEST(AssertDeathTest, NamesExpressionPlaceAndValues) {
  const int64_t page = 7, pages = 4;
  KVC_ASSERT(pages < page, page, pages);
  EXPECT_DEATH(KVC_ASSERT(page < pages, page, pages), "assert_test.cc:.+: KVC_ASSERT\\(page < pages\\).*: 7, 4");
}

}  // namespace
}  // namespace kvc

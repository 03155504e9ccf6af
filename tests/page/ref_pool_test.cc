#include "page/ref_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvc {
namespace {

TEST(RefPool, GivesOutLowestNeverUsedThenLastFreed) {
  RefPool pool(4);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_TRUE(pool.unref(0));
  EXPECT_TRUE(pool.unref(2));
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 3);
  EXPECT_EQ(pool.free(), 0);
}

TEST(RefPool, FreesWithTheLastReference) {
  RefPool pool(2);
  const int32_t id = pool.allocate();
  pool.ref(id);
  EXPECT_FALSE(pool.unref(id));
  EXPECT_EQ(pool.used(), 1);
  EXPECT_TRUE(pool.unref(id));
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.peak(), 1);
}

TEST(RefPool, ListsFreeIdsInTheOrderOfAllocation) {
  RefPool pool(5);
  for (int i = 0; i < 3; ++i) pool.allocate();
  pool.unref(1);
  pool.unref(0);
  std::vector<int32_t> listed;
  pool.for_each_free([&](int32_t id) { listed.push_back(id); });
  std::vector<int32_t> given;
  while (pool.free() > 0) given.push_back(pool.allocate());
  EXPECT_EQ(listed, given);
}

}  // namespace
}  // namespace kvc

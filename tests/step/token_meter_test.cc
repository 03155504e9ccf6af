// The time of a token, from the times of forwards.
#include "step/token_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvc {
namespace {

TEST(TokenMeter, NothingIsMeasuredAtFirst) {
  TokenMeter meter;
  EXPECT_EQ(meter.token_ns(), 0);
  meter.add(0, 0, 100);
  meter.add(10, 200, 200);
  EXPECT_EQ(meter.token_ns(), 0);
  meter.add(10, 200, 201);  // less than a nanosecond for a token
  EXPECT_EQ(meter.token_ns(), 1);
}

// Decode steps take much longer for a token than prompts do.
TEST(TokenMeter, TheLargestForwardsCount) {
  TokenMeter meter;
  meter.add(1, 0, 900);
  EXPECT_EQ(meter.token_ns(), 900);
  meter.add(600, 1000, 61000);
  EXPECT_EQ(meter.token_ns(), 100);
  for (int64_t i = 0; i < 100; i++) meter.add(1 + i % 511, 100000 * i, 100000 * i + 70000);
  EXPECT_EQ(meter.token_ns(), 100);
  meter.add(512, 10'000'000, 10'000'000 + 512 * 60);  // the same power of two
  EXPECT_EQ(meter.token_ns(), 60);
}

TEST(TokenMeter, AFewSlowForwardsDoNotCount) {
  TokenMeter meter;
  int64_t now = 0;
  const auto add = [&](int64_t ns) {
    meter.add(10, now, now + 10 * ns);
    now += 10 * ns;
    return meter.token_ns();
  };
  EXPECT_EQ(add(5000), 5000);
  EXPECT_EQ(add(100), 100);
  EXPECT_EQ(add(102), 102);
  EXPECT_EQ(add(101), 101);
  EXPECT_EQ(add(9000), 102);
  EXPECT_EQ(add(9000), 102);   // the first one is forgotten
  EXPECT_EQ(add(9000), 9000);  // three of five
}

// Two forwards that are open at the same time share the processor.
TEST(TokenMeter, OverlappingForwardsCountOnce) {
  TokenMeter meter;
  meter.add(10, 0, 1000);
  meter.add(10, 500, 2000);
  meter.add(10, 600, 3000);
  EXPECT_EQ(meter.token_ns(), 100);
  TokenMeter within;
  within.add(16, 0, 1600);
  within.add(16, 500, 1600);  // ended at the same time
  EXPECT_EQ(within.token_ns(), 100);
}

TEST(TokenMeter, IsTheMedianOfTheLastFive) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; round++) {
    TokenMeter meter;
    std::vector<int64_t> all;
    for (int64_t now = 0; all.size() < 40;) {
      all.push_back(1 + random() % 8);
      meter.add(4, now, now + 4 * all.back());
      now += 1000;
      std::vector<int64_t> last(all.end() - std::min<ptrdiff_t>(5, std::ssize(all)), all.end());
      std::sort(last.begin(), last.end());
      ASSERT_EQ(meter.token_ns(), last[(last.size() - 1) / 2]);
    }
  }
}

}  // namespace
}  // namespace kvc

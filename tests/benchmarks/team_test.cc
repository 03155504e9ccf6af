// The threads of the probes: all at once, each on a core of its own.
#include "attention/team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>

namespace kvc::benchmark {
namespace {

TEST(Team, HasACoreForEachThread) {
  const std::vector<int> before = allowed_cpus();
  for (int threads = 1; threads <= 4; ++threads) {
    Team team(threads);
    for (int round = 0; round < 30; ++round) {
      std::vector<int> cpus(static_cast<size_t>(threads), -1);
      team.run([&](int thread) { cpus[static_cast<size_t>(thread)] = sched_getcpu(); });
      const std::set<int> used(cpus.begin(), cpus.end());
      EXPECT_EQ(used.count(-1), 0u);
      EXPECT_EQ(used.size(), std::min(cpus.size(), before.size())) << threads << " threads, round " << round;
    }
  }
  EXPECT_EQ(allowed_cpus(), before);  // the caller may run on the same cores as before
}

TEST(Team, TakesFromTheFirstBeginToTheLastEnd) {
  Team team(2);
  const double took = team.run([](int thread) {
    const double begin = now_seconds(2);
    while (thread == 1 && now_seconds(2) < begin + 0.02) {
    }
  });
  EXPECT_GE(took, 0.02);
}

}  // namespace
}  // namespace kvc::benchmark

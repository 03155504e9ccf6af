// Properties of the merge of partial softmax states: it is associative and commutative, empty states are neutral, and
// it agrees with float64.
#include "kernels/common/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace kvc::kernels::test {
namespace {

struct State {
  float m = -INFINITY, l = 0.0f;
  float o[3] = {};
};

State merged(State a, const State& b) {
  merge_state(a.o, &a.m, &a.l, b.o, b.m, b.l, 3);
  return a;
}

void expect_near(const State& a, const State& b) {
  ASSERT_FALSE(std::isnan(a.m) || std::isnan(a.l) || std::isnan(a.o[0]));
  EXPECT_EQ(a.m, b.m);
  EXPECT_NEAR(a.l, b.l, 1e-6f * std::fabs(b.l));
  for (int d = 0; d < 3; ++d) EXPECT_NEAR(a.o[d], b.o[d], 2e-6f * b.l);
}

TEST(Merge, Properties) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int round = 0; round < 20000; ++round) {
    const float spread = round % 3 == 0 ? 1e4f : round % 3 == 1 ? 50.0f : 1.0f;
    State s[3];
    for (State& x : s) {
      if (random() % 4 == 0) continue;
      x.m = spread * uniform(random);
      x.l = 1.0f + 100.0f * std::fabs(uniform(random));
      for (float& o : x.o) o = x.l * uniform(random);
    }
    expect_near(merged(merged(s[0], s[1]), s[2]), merged(s[0], merged(s[1], s[2])));
    expect_near(merged(s[0], s[1]), merged(s[1], s[0]));
    expect_near(merged(s[0], State()), s[0]);
    expect_near(merged(State(), s[0]), s[0]);
    // Compares normalised states with float64.
    const double m = std::max({s[0].m, s[1].m, s[2].m});
    if (m == -INFINITY) continue;
    double l = 0.0, o = 0.0;
    for (const State& x : s) {
      l += x.l * std::exp(x.m - m);
      o += x.o[0] * std::exp(x.m - m);
    }
    const State all = merged(merged(s[0], s[1]), s[2]);
    const FinalState final = final_state(all.m, all.l, nullptr);
    EXPECT_NEAR(all.o[0] * final.scale, o / l, 2e-6);
    EXPECT_NEAR(final.lse, m + std::log(l), 1e-6 * (1.0 + std::fabs(m)));
    // A sink is a state without a value.
    const float sink = spread * uniform(random);
    const double with_sink = std::max<double>(m, sink), sum = l * std::exp(m - with_sink) + std::exp(sink - with_sink);
    const FinalState sunk = final_state(all.m, all.l, &sink);
    EXPECT_NEAR(all.o[0] * sunk.scale, o * std::exp(m - with_sink) / sum, 2e-6);
    EXPECT_NEAR(sunk.lse, with_sink + std::log(sum), 1e-6 * (1.0 + std::fabs(with_sink)));
  }
}

TEST(Merge, EmptiesStayEmpty) {
  const State empty = merged(State(), State());
  EXPECT_EQ(empty.m, -INFINITY);
  EXPECT_EQ(empty.l, 0.0f);
  EXPECT_EQ(empty.o[0], 0.0f);
  const float none = -INFINITY, sink = -2.5f;
  for (const float* logit : {static_cast<const float*>(nullptr), &none}) {
    EXPECT_EQ(final_state(empty.m, empty.l, logit).lse, -INFINITY);
    EXPECT_EQ(final_state(empty.m, empty.l, logit).scale, 0.0);
  }
  EXPECT_EQ(final_state(empty.m, empty.l, &sink).lse, sink);
  EXPECT_EQ(final_state(empty.m, empty.l, &sink).scale, 0.0);
}

}  // namespace
}  // namespace kvc::kernels::test

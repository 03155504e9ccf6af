// The verdict on samples: reached, short, or none.
#include "attention/judge.h"

#include <gtest/gtest.h>

namespace kvc::benchmark {
namespace {

Sample sample_of(double ours, double stream, double ops = 0, double copy = 0) {
  Sample sample;
  sample.ours = ours;
  sample.stream = sample.pages = stream;
  sample.ops = ops;
  sample.copy = copy;
  return sample;
}

TEST(ProbeFailed, WhereTheMachineSeemsSlowerThanWhatItJustDid) {
  EXPECT_FALSE(probe_failed(sample_of(1.0, 0.9), Limit::kStream));
  EXPECT_FALSE(probe_failed(sample_of(1.0, 1.04), Limit::kStream));  // as fast as a plain read, within noise
  EXPECT_TRUE(probe_failed(sample_of(1.0, 1.06), Limit::kStream));
  EXPECT_TRUE(probe_failed(sample_of(1.0, 1.06), Limit::kFloor));
  EXPECT_TRUE(probe_failed(sample_of(1.0, 0, 0, 2.0), Limit::kCopy));
  // A prefill reads K and V many times from the caches of the CPU, so a plain read is no limit for it.
  EXPECT_FALSE(probe_failed(sample_of(1.0, 3.0, 0.9), Limit::kOps));
}

TEST(ProbeFailed, WhereInstructionsSeemSlowerThanAKernelOfThem) {
  for (Limit limit : {Limit::kOps, Limit::kStream, Limit::kFloor, Limit::kMicroseconds}) {
    EXPECT_TRUE(probe_failed(sample_of(1.0, 0.5, 1.95), limit));
    EXPECT_FALSE(probe_failed(sample_of(1.0, 0.5, 0.95), limit));
  }
}

TEST(Judge, ComparesMedians) {
  const std::vector<Sample> samples = {sample_of(1.0, 0.9), sample_of(1.2, 0.8), sample_of(1.1, 0.88),
                                       sample_of(9.0, 0.7), sample_of(0.9, 0.9)};
  const Judgement judged = judge(samples, 0, Limit::kStream, 0.79);
  EXPECT_DOUBLE_EQ(judged.ratio, 0.88 / 1.1);
  EXPECT_DOUBLE_EQ(judged.low, 0.8 / 1.2);
  EXPECT_DOUBLE_EQ(judged.high, 0.9);
  EXPECT_EQ(judged.verdict, Verdict::kReached);
  EXPECT_EQ(judge(samples, 0, Limit::kStream, 0.81).verdict, Verdict::kShort);
}

TEST(Judge, HoldsTimesAgainstTheMost) {
  const std::vector<Sample> samples(kFewestSamples, sample_of(25e-6, 1e-6));
  EXPECT_EQ(judge(samples, 0, Limit::kMicroseconds, 30).verdict, Verdict::kReached);
  EXPECT_EQ(judge(samples, 0, Limit::kMicroseconds, 20).verdict, Verdict::kShort);
}

TEST(Judge, RefusesWhereProbesFailed) {
  const std::vector<Sample> samples(kFewestSamples, sample_of(1.0, 0.9));
  const std::vector<Sample> few(kFewestSamples - 1, sample_of(1.0, 0.9));
  const int some = static_cast<int>(kFewestSamples);
  EXPECT_EQ(judge(samples, some, Limit::kStream, 0.8).verdict, Verdict::kReached);
  EXPECT_EQ(judge(samples, some + 1, Limit::kStream, 0.8).verdict, Verdict::kProbeFailed);
  EXPECT_EQ(judge(few, 0, Limit::kStream, 0.8).verdict, Verdict::kProbeFailed);
  EXPECT_EQ(judge({}, 20, Limit::kStream, 0.8).verdict, Verdict::kProbeFailed);
}

// This line showed the fault: "2 threads do 2.02 times as much as one, the machine 1.00: got 2.02 reached".
TEST(Judge, RefusesAScalingThatTheMachineDoesNotHave) {
  const Sample one = sample_of(2.02, 0, 1.0);
  EXPECT_EQ(judge_scaling(one, sample_of(1.0, 0, 1.0), 0.93).verdict, Verdict::kProbeFailed);
  EXPECT_EQ(judge_scaling(one, sample_of(1.0, 0, 0.5), 0.93).verdict, Verdict::kReached);
  EXPECT_EQ(judge_scaling(one, sample_of(1.2, 0, 0.5), 0.93).verdict, Verdict::kShort);
}

}  // namespace
}  // namespace kvc::benchmark

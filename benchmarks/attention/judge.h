// What paired samples say of a target, and which of them cannot be true. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/case.h"

namespace kvc::benchmark {

// Seconds each; 0 = does not apply.
struct Sample {
  double ours = 0, stream = 0, pages = 0, ops = 0, copy = 0;
};

enum class Verdict { kReached, kShort, kProbeFailed, kNotSupported, kFailed };

struct Judgement {
  Verdict verdict = Verdict::kProbeFailed;
  Sample median;
  double ratio = 0;          // limit / ours of the medians, or microseconds
  double low = 0, high = 0;  // quartiles of the paired ratios
};

// By how much ours may be faster than a limit before it is the limit's probe that is wrong.
constexpr double kBeyond = 1.05;

constexpr size_t kFewestSamples = 5;

// Seconds of the limit that a target names, in a sample.
double limit_seconds(const Sample& sample, Limit limit);

// Whether a probe says that the machine cannot do what ours just did beside it. It was disturbed (its threads did not
// run at once, a neighbour came), and a ratio to it means nothing.
bool probe_failed(const Sample& sample, Limit limit);

// Of samples whose probes were right, `failed` others having been thrown away. Nothing is reached, or missed, by fewer
// than kFewestSamples, nor where most of the probes failed.
Judgement judge(const std::vector<Sample>& samples, int failed, Limit limit, double target);

// How much more several threads do than one, held against the machine's own gain.
struct Scaling {
  double gain, machine_gain, ratio;
  Verdict verdict;
};
Scaling judge_scaling(const Sample& one, const Sample& many, double target);

double median(std::vector<double> values);

}  // namespace kvc::benchmark

// Judges a target by paired samples, and finds samples that cannot be true. Pure.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/case.h"

namespace kvc::benchmark {

// Times in seconds; 0 = the case has no such limit.
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

// If our work is faster than a limit by more than this factor, the probe of the limit is taken as wrong.
constexpr double kBeyond = 1.05;

constexpr size_t kFewestSamples = 5;

// The time of the target's limit in a sample, in seconds.
double limit_seconds(const Sample& sample, Limit limit);

// Whether the probe of a limit is slower than our work beside it. Then something disturbed the probe, for example
// another process, and its ratio says nothing.
bool probe_failed(const Sample& sample, Limit limit);

// Judges samples whose probes are right; `failed` is the number of other samples, which were dropped. With fewer than
// kFewestSamples samples, or if most of the probes failed, the verdict is neither reached nor short.
Judgement judge(const std::vector<Sample>& samples, int failed, Limit limit, double target);

// The speed of several threads over that of one, compared with the same gain of the machine's limit.
struct Scaling {
  double gain, machine_gain, ratio;
  Verdict verdict;
};
Scaling judge_scaling(const Sample& one, const Sample& many, double target);

double median(std::vector<double> values);

}  // namespace kvc::benchmark

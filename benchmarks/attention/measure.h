// Paired samples of one case, and what they say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "attention/subject.h"

namespace kvc::benchmark {

enum class Verdict { kReached, kShort, kNotSupported, kFailed };

struct Result {
  Case work;
  int threads;
  Verdict verdict;
  std::string message;      // why there are no figures
  std::string instruction;  // whose peak `ops` is; empty: no operations
  int samples = 0;
  Sample median;             // seconds
  double target = 0;         // ratio, or microseconds
  double ratio = 0;          // limit / ours of the medians, or microseconds
  double low = 0, high = 0;  // quartiles of the paired ratios
};

// Seconds of the limit that a target names, in a sample.
double limit_seconds(const Sample& sample, Limit limit);

// Samples until `seconds` have passed, at least 5 and at most 101.
Result measure(const Case& work, const Options& options, Team* team, double seconds);

double median(std::vector<double> values);

}  // namespace kvc::benchmark

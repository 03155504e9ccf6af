// Paired samples of one case, and what they say.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "attention/judge.h"
#include "attention/subject.h"

namespace kvc::benchmark {

struct Result {
  Case work;
  int threads;
  std::string message;      // why there are no figures
  std::string instruction;  // whose peak `ops` is; empty: no operations
  int samples = 0;          // whose probes were right
  int failed_probes = 0;    // samples that were thrown away and taken again
  double target = 0;        // ratio, or microseconds
  Judgement judged;
};

// Samples until `seconds` have passed, at least kFewestSamples and at most 101; a sample with a probe that failed is
// taken again.
Result measure(const Case& work, const Options& options, Team* team, double seconds);

}  // namespace kvc::benchmark

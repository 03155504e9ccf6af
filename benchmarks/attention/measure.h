// Takes paired samples of one case, and judges them.
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
  std::string instruction;  // the instruction whose peak `ops` is; empty: no operations
  int samples = 0;          // samples whose probes were right
  int failed_probes = 0;    // samples that were dropped and taken again
  double target = 0;        // ratio, or microseconds
  Judgement judged;
};

// Takes samples until `seconds` have passed: at least kFewestSamples and at most 101. A sample whose probe failed is
// taken again.
Result measure(const Case& work, const Options& options, Team* team, double seconds);

}  // namespace kvc::benchmark

// Attention with all threads beside one thread, on a quiet machine and while another process takes one core.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/case.h"
#include "attention/fixture.h"

namespace kvc::benchmark {

// Prints for each case what `options.threads` threads gain over one thread: the ratio of the mean times of a call.
// `seconds`: for a case.
void measure_beside_load(const std::vector<Case>& cases, const Options& options, double seconds);

}  // namespace kvc::benchmark

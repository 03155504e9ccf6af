// Results as lines of a table and as one JSON file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "attention/measure.h"

namespace kvc::benchmark {

// The limits of the machine with one number of threads.
struct Machine {
  int threads;
  double stream_bytes;                                // bytes per second, over 256 MiB
  std::vector<std::pair<std::string, double>> rates;  // operations per second of each instruction
};

Machine measure_machine(Team* team);

void print_machine(const Machine& machine);
void print_header();
void print_result(const Result& result);

// The lines that compare others: the speed of several threads over that of one, beside the same gain of the machine's
// limit.
void print_scaling(const std::vector<Result>& results);

void write_json(FILE* file, const std::vector<Machine>& machines, const std::vector<Result>& results);

// The table of cases as JSON, for programs that run the same work.
void write_cases(FILE* file);

}  // namespace kvc::benchmark

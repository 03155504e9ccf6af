// Results as lines of a table and as one JSON file.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "attention/measure.h"

namespace kvc::benchmark {

// What was found out about the machine with one thread count.
struct Machine {
  int threads;
  double stream_bytes;                                // a second, over 256 MiB
  std::vector<std::pair<std::string, double>> rates;  // operations a second by instruction
};

Machine measure_machine(Team* team);

void print_machine(const Machine& machine);
void print_header();
void print_result(const Result& result);

// Lines that follow from others: how much more several threads do than one, against the machine's own gain.
void print_scaling(const std::vector<Result>& results);

void write_json(FILE* file, const std::vector<Machine>& machines, const std::vector<Result>& results);

// The table of cases as JSON, for programs that run the same work.
void write_cases(FILE* file);

}  // namespace kvc::benchmark

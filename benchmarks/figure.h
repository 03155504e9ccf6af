// A figure of a benchmark, beside its target. Every benchmark but `attention` reports in this way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

namespace kvc::benchmark {

enum class Better { kLower, kHigher };

// Prints a line. If the environment variable KVC_FIGURES names a file, it also gets a line of JSON, from which
// write_results.py makes a page. Texts have no quotes and no backslashes. target: 0 = none. note: what else to know,
// such as the limit of the same run.
inline void print_figure(const char* section, const char* name, double value, const char* unit, double target,
                         Better better, const char* note = "") {
  const bool reached = better == Better::kLower ? value <= target : value >= target;
  std::printf("%-60s %9.2f %-6s", name, value, unit);
  if (target > 0) std::printf(" target %6.2f %s", target, reached ? "reached" : "missed");
  std::printf("%s%s\n", note[0] != '\0' ? "; " : "", note);
  std::fflush(stdout);
  const char* path = std::getenv("KVC_FIGURES");
  if (path == nullptr) return;
  std::FILE* file = std::fopen(path, "a");
  if (file == nullptr) {
    std::perror(path);
    std::exit(1);
  }
  std::fprintf(file,
               "{\"section\": \"%s\", \"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"target\": %g, "
               "\"better\": \"%s\", \"note\": \"%s\"}\n",
               section, name, value, unit, target, better == Better::kLower ? "lower" : "higher", note);
  std::fclose(file);
}

}  // namespace kvc::benchmark

// Measures attention through the C API against the limits of this machine. A probe of the limits is taken beside each
// sample.
//   attention [--threads N] [--quick] [--seconds S] [--simd NAME] [--json FILE] [--deterministic | --no-sharing]
//             [--small-pages] [--part I/N] [FILTER]...
//   attention --beside-load [--threads N] [--seconds S] [--simd NAME] [FILTER]...
//                                    what N threads gain over one, also while another process takes one core
//   attention --list                 the cases as JSON
//   attention --serve NAME [...]     sets one case up; then answers each line of stdin with one sample
// --small-pages: this process gets no huge pages.
// --part I/N: every N-th case from the I-th on, I in 1..N. So a run can be made in pieces, which roofline.py joins.
// Without --threads: first one thread, then all cores. FILTER: part of a case's name; with several, a case matches any
// of them.
// Times are CPU time of the process with one thread, and wall time with more. Ratios are those of medians, with the
// quartiles of the paired samples. A case that the library refuses is printed as such and counts as neither passed nor
// failed. If a probe is slower than our own work beside it, the sample is taken again (judge.h).
// SPDX-License-Identifier: Apache-2.0
#include <sys/prctl.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "attention/beside_load.h"
#include "attention/report.h"

namespace {

using namespace kvc::benchmark;

struct Arguments {
  std::vector<int> threads;
  bool quick = false, list = false, small_pages = false, beside_load = false;
  double seconds = 1.5;
  int part = 1, parts = 1;
  std::string simd, json, serve;
  uint32_t flags = 0;
  std::vector<std::string> filters;
};

bool parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc;
    if (name == "--quick") {
      arguments->quick = true;
      arguments->seconds = 0.4;
    } else if (name == "--list") {
      arguments->list = true;
    } else if (name == "--beside-load") {
      arguments->beside_load = true;
    } else if (name == "--deterministic") {
      arguments->flags |= KVC_CACHE_DETERMINISTIC;
    } else if (name == "--small-pages") {
      arguments->small_pages = true;
    } else if (name == "--no-sharing") {
      arguments->flags |= KVC_CACHE_NO_PREFIX_SHARING;
    } else if (name == "--part" && has_value) {
      if (std::sscanf(argv[++i], "%d/%d", &arguments->part, &arguments->parts) != 2 || arguments->part < 1 ||
          arguments->part > arguments->parts)
        return false;
    } else if (name == "--threads" && has_value) {
      arguments->threads = {std::max(1, std::atoi(argv[++i]))};
    } else if (name == "--seconds" && has_value) {
      arguments->seconds = std::atof(argv[++i]);
    } else if (name == "--simd" && has_value) {
      arguments->simd = argv[++i];
    } else if (name == "--json" && has_value) {
      arguments->json = argv[++i];
    } else if (name == "--serve" && has_value) {
      arguments->serve = argv[++i];
    } else if (name.rfind("--", 0) == 0) {
      return false;
    } else {
      arguments->filters.push_back(name);
    }
  }
  if (arguments->threads.empty()) {
    arguments->threads = {1};
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    if (cores > 1) arguments->threads.push_back(cores);
  }
  return true;
}

bool wanted(const Case& work, const Arguments& arguments) {
  if (arguments.quick && !work.quick) return false;
  for (const std::string& filter : arguments.filters) {
    if (work.name().find(filter) != std::string::npos) return true;
  }
  return arguments.filters.empty();
}

// Serves another program that measures the same work in turn: for each line of stdin, runs one sample of the case and
// prints its seconds.
int serve(const Arguments& arguments) {
  for (const Case& work : cases()) {
    if (work.name() != arguments.serve) continue;
    const Options options = {arguments.threads[0], arguments.simd, arguments.flags};
    Team team(options.threads);
    try {
      const std::unique_ptr<Subject> subject = make_subject(work, options, &team);
      std::printf("ready\n");
      std::fflush(stdout);
      for (char line[64]; std::fgets(line, sizeof line, stdin) != nullptr;) {
        Sample sample = subject->sample();
        for (int again = 0; again < 5 && probe_failed(sample, work.target.limit); ++again) sample = subject->sample();
        std::printf("{\"ours\": %.9g, \"stream\": %.9g, \"pages\": %.9g, \"ops\": %.9g}\n", sample.ours, sample.stream,
                    sample.pages, sample.ops);
        std::fflush(stdout);
      }
    } catch (const std::exception& error) {
      std::printf("refused: %s\n", error.what());
    }
    return 0;
  }
  std::fprintf(stderr, "no case is called %s\n", arguments.serve.c_str());
  return 2;
}

int run(const Arguments& arguments) {
  std::vector<Machine> machines;
  std::vector<Result> results;
  for (const int threads : arguments.threads) {
    Team team(threads);
    machines.push_back(measure_machine(&team));
    print_machine(machines.back());
  }
  print_header();
  int index = 0;
  for (const Case& work : cases()) {
    if (!wanted(work, arguments) || index++ % arguments.parts != arguments.part - 1) continue;
    for (const int threads : arguments.threads) {
      Team team(threads);
      results.push_back(measure(work, {threads, arguments.simd, arguments.flags}, &team, arguments.seconds));
      print_result(results.back());
      std::fflush(stdout);
      if (results.back().judged.verdict == Verdict::kNotSupported) break;
    }
  }
  print_scaling(results);
  if (!arguments.json.empty()) {
    FILE* file = std::fopen(arguments.json.c_str(), "w");
    if (file == nullptr) {
      std::perror(arguments.json.c_str());
      return 1;
    }
    write_json(file, machines, results);
    std::fclose(file);
  }
  for (const Result& result : results) {
    if (result.judged.verdict == Verdict::kFailed) return 1;
  }
  return 0;
}

int beside_load(const Arguments& arguments) {
  std::vector<Case> chosen;
  for (const Case& work : cases()) {
    if (wanted(work, arguments)) chosen.push_back(work);
  }
  const int threads = arguments.threads.back();
  if (threads < 2 || chosen.empty()) {
    std::fprintf(stderr, "--beside-load: %d threads and %zu cases\n", threads, chosen.size());
    return 2;
  }
  measure_beside_load(chosen, {threads, arguments.simd, arguments.flags}, arguments.seconds * 4);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: attention [--threads N] [--quick] [--seconds S] [--simd NAME] [--json FILE]\n"
                 "                 [--deterministic | --no-sharing] [--small-pages] [--part I/N] [FILTER]...\n"
                 "       attention --beside-load [--threads N] [--seconds S] [--simd NAME] [FILTER]...\n"
                 "       attention --list\n"
                 "       attention --serve NAME [--threads N] [--simd NAME]\n");
    return 2;
  }
  if (arguments.list) {
    write_cases(stdout);
    return 0;
  }
  if (arguments.small_pages && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) {
    std::perror("--small-pages");
    return 1;
  }
  if (arguments.beside_load) return beside_load(arguments);
  return arguments.serve.empty() ? run(arguments) : serve(arguments);
}

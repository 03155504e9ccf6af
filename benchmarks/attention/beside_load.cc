// SPDX-License-Identifier: Apache-2.0
#include "attention/beside_load.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "attention/subject.h"
#include "figure.h"

namespace kvc::benchmark {
namespace {

using Clock = std::chrono::steady_clock;

// A process that does nothing but compute. The system decides where it runs.
class Load {
 public:
  Load() : process_(fork()) {
    if (process_ < 0) throw std::runtime_error("fork failed");
    if (process_ == 0) compute();
    stop();
  }
  ~Load() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void stop() { kill(process_, SIGSTOP); }
  void go() { kill(process_, SIGCONT); }

 private:
  [[noreturn]] static void compute() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::atomic<unsigned> turns{0};
    for (;;) turns.fetch_add(1, std::memory_order_relaxed);
  }

  const pid_t process_;
};

// One number of threads over one case. Beside a load, some calls take several times as long as others, so the mean of
// a while counts, and not the median call.
class Runner {
 public:
  Runner(const Case& work, Options options, int threads) : team_(threads) {
    options.threads = threads;
    subject_ = make_subject(work, options, &team_);
    for (int i = 0; i < 3; ++i) subject_->ours();
  }

  // Mean seconds of the calls of so many seconds.
  double mean(double seconds) {
    int calls = 0;
    const auto begin = Clock::now();
    double passed = 0;
    do {
      subject_->ours();
      ++calls;
      passed = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (passed < seconds);
    return passed / calls;
  }

 private:
  Team team_;
  std::unique_ptr<Subject> subject_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure_case(const Case& work, const Options& options, double seconds, Load* load) {
  constexpr int kRounds = 5;
  Runner one(work, options, 1), all(work, options, options.threads);
  const double each = seconds / (4 * kRounds);
  std::vector<double> quiet, beside;
  for (int round = 0; round < kRounds; ++round) {
    const double alone = one.mean(each);
    quiet.push_back(alone / all.mean(each));
    load->go();
    const double loaded = one.mean(each);
    beside.push_back(loaded / all.mean(each));
    load->stop();
  }
  const std::string section = "Attention with " + std::to_string(options.threads) + " threads beside one thread";
  print_figure(section.c_str(), (work.name() + ", quiet").c_str(), median(quiet), "x", 0.95 * options.threads,
               Better::kHigher);
  // The load takes half of a core, if the system shares the cores fairly.
  print_figure(section.c_str(), (work.name() + ", beside a load").c_str(), median(beside), "x",
               0.9 * (options.threads - 0.5), Better::kHigher);
}

}  // namespace

void measure_beside_load(const std::vector<Case>& cases, const Options& options, double seconds) {
  Load load;
  for (const Case& work : cases) {
    try {
      measure_case(work, options, seconds, &load);
    } catch (const NotSupported& refused) {
      std::printf("%s: not supported: %s\n", work.name().c_str(), refused.what());
    }
  }
}

}  // namespace kvc::benchmark

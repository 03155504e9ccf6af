// A few threads that run one function at once, for the probes of the machine: between runs they sleep, so that they
// never take a core from what is measured. Each has a core of its own for the run, the caller too: a thread that is
// woken on the core of who woke it shares that core until the system moves it, which can take longer than a probe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace kvc::benchmark {

// Seconds on the clock that a measurement with so many threads uses. One thread: CPU time of the process, which a
// neighbour on the same core cannot lengthen. More: wall time.
double now_seconds(int threads);

// Those that the calling thread may run on, ascending; never empty.
std::vector<int> allowed_cpus();

class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  // Seconds from the moment when every thread is there until the last one has returned from part(thread).
  double run(const std::function<void(int)>& part);

 private:
  void work(int thread);
  void meet_and_run(int thread);

  const int threads_;
  const std::vector<int> cpus_;  // that the process may use
  std::vector<std::thread> workers_;
  const std::function<void(int)>* part_ = nullptr;
  size_t first_cpu_ = 0;             // of cpus_: the caller's, for one run
  std::vector<double> begin_, end_;  // [threads]
  std::atomic<int> round_{0}, arrived_{0}, done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace kvc::benchmark

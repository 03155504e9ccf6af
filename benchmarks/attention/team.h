// Team: a few threads that run one function at once, for the probes of the machine. Between runs they sleep, so that
// they take no core from what is measured. During a run each thread, the caller too, has a core of its own. Otherwise a
// thread that wakes on the caller's core would share it until the system moves one of them, which can take longer than
// a probe.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace kvc::benchmark {

// Seconds on the clock for measurements with so many threads. With one thread it is the CPU time of the process, which
// other processes on the same core do not lengthen. With more it is wall time.
double now_seconds(int threads);

// The CPUs that the calling thread may run on, ascending; never empty.
std::vector<int> allowed_cpus();

class Team {
 public:
  explicit Team(int threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  // Seconds from the moment when all threads are ready until the last one returns from part(thread).
  double run(const std::function<void(int)>& part);

 private:
  void work(int thread);
  void meet_and_run(int thread);

  const int threads_;
  const std::vector<int> cpus_;  // that the process may use
  std::vector<std::thread> workers_;
  const std::function<void(int)>* part_ = nullptr;
  size_t first_cpu_ = 0;             // index of the caller's in cpus_, for one run
  std::vector<double> begin_, end_;  // [threads]
  std::atomic<int> round_{0}, arrived_{0}, done_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace kvc::benchmark

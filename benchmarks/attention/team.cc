// SPDX-License-Identifier: Apache-2.0
#include "attention/team.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace kvc::benchmark {

namespace {

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);  // if it is refused, the system chooses the cores
}

}  // namespace

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);
  return cpus;
}

double now_seconds(int threads) {
  timespec time = {};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Team::Team(int threads)
    : threads_(threads),
      cpus_(allowed_cpus()),
      begin_(static_cast<size_t>(threads)),
      end_(static_cast<size_t>(threads)) {
  for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
}

Team::~Team() {
  stop_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Team::work(int thread) {
  for (int seen = 0;;) {
    round_.wait(seen);
    seen = round_.load();
    if (stop_) return;
    meet_and_run(thread);
    done_.fetch_add(1);
  }
}

void Team::meet_and_run(int thread) {
  if (threads_ > 1) pin_to(cpus_[(first_cpu_ + static_cast<size_t>(thread)) % cpus_.size()]);
  arrived_.fetch_add(1);
  while (arrived_.load() < threads_) std::this_thread::yield();
  const auto index = static_cast<size_t>(thread);
  begin_[index] = now_seconds(threads_);
  (*part_)(thread);
  end_[index] = now_seconds(threads_);
}

double Team::run(const std::function<void(int)>& part) {
  cpu_set_t before;
  const bool restore = threads_ > 1 && sched_getaffinity(0, sizeof before, &before) == 0;
  // The caller stays on its core. On another one it might share that core with a thread of the library later.
  const auto here = std::find(cpus_.begin(), cpus_.end(), sched_getcpu());
  first_cpu_ = here == cpus_.end() ? 0 : static_cast<size_t>(here - cpus_.begin());
  part_ = &part;
  arrived_ = 0;
  done_ = 0;
  round_.fetch_add(1);
  round_.notify_all();
  meet_and_run(0);
  while (done_.load() < threads_ - 1) std::this_thread::yield();
  if (restore) sched_setaffinity(0, sizeof before, &before);
  return *std::max_element(end_.begin(), end_.end()) - *std::min_element(begin_.begin(), begin_.end());
}

}  // namespace kvc::benchmark

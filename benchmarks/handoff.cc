// Measures how long the thread pool takes to hand work to its worker, for each state of the worker. Prints medians and
// 99th percentiles.
//   handoff [rounds]     default 2000
// Two figures for each state:
//   delay    run() of two empty items: all that the pool may cost a caller that could have done them alone
//   meeting  run() of two items that wait for each other: from the caller to a worker that really came, and back
// The pool has two threads. In some states a busy thread of another owner is pinned to the core that the caller does
// not use.
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "context/thread_pool.h"

namespace {

using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void spin_for_us(double us) {
  for (const auto begin = Clock::now(); us_since(begin) < us;) {
  }
}

void empty_item(void*, int64_t, int32_t) {}

void meet(void* arg, int64_t, int32_t) {
  auto& arrived = *static_cast<std::atomic<int>*>(arg);
  arrived.fetch_add(1);
  while (arrived.load() < 2) {
  }
}

struct Row {
  const char* name;
  double pause_us;  // between two jobs; the caller is busy meanwhile
  int32_t effort;   // a kvc_backend_effort; tiny: the caller alone
  bool meeting;
  bool keep_awake;
  bool foreign;  // another busy thread runs on the other core
};

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

void measure(const Row& row, int rounds) {
  std::atomic<bool> stop{false};
  std::thread foreign;
  if (row.foreign) {
    const int other = (sched_getcpu() + 1) % static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    foreign = std::thread([&stop, other] {
      pin(other);
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  kvc::ThreadPool pool(2);
  if (row.keep_awake) pool.keep_awake(1);
  std::vector<double> times;
  for (int i = -20; i < rounds; i++) {
    spin_for_us(row.pause_us);
    std::atomic<int> arrived{0};
    const auto begin = Clock::now();
    pool.run(2, row.effort, row.meeting ? meet : empty_item, &arrived);
    if (i >= 0) times.push_back(us_since(begin));
  }
  stop = true;
  if (foreign.joinable()) foreign.join();
  std::sort(times.begin(), times.end());
  std::printf("%-44s %-8s %9.2f %9.2f %9.2f\n", row.name, row.meeting ? "meeting" : "delay", times[times.size() / 2],
              times[times.size() * 99 / 100], times.back());
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 2000;
  constexpr Row kRows[] = {
      {"caller alone (tiny)", 5, KVC_EFFORT_TINY, false, false, false},
      {"worker spinning", 5, KVC_EFFORT_SMALL, false, false, false},
      {"worker spinning", 5, KVC_EFFORT_LARGE, true, false, false},
      {"worker asleep, caller away for 500 us", 500, KVC_EFFORT_SMALL, false, false, false},
      {"the same, a job worth waking for", 500, KVC_EFFORT_LARGE, false, false, false},
      {"the same, a job worth waking for", 500, KVC_EFFORT_LARGE, true, false, false},
      {"kept awake, caller away for 500 us", 500, KVC_EFFORT_SMALL, false, true, false},
      {"kept awake, caller away for 500 us", 500, KVC_EFFORT_LARGE, true, true, false},
      {"foreign thread busy, alone, 500 us", 500, KVC_EFFORT_TINY, false, false, true},
      {"foreign thread busy, caller away for 5 us", 5, KVC_EFFORT_SMALL, false, false, true},
      {"foreign thread busy, caller away for 500 us", 500, KVC_EFFORT_SMALL, false, false, true},
      {"the same, a job worth waking for", 500, KVC_EFFORT_LARGE, false, false, true},
      {"foreign thread busy, kept awake, 500 us", 500, KVC_EFFORT_SMALL, false, true, true},
  };
  std::printf("%-44s %-8s %9s %9s %9s\n", "us", "", "median", "99 %", "max");
  for (const Row& row : kRows) measure(row, rounds);
  std::printf("targets: 0.5 to a spinning worker; beside a foreign thread at most 5 more than the caller alone\n");
}

#include "system/thread_place.h"

#include <sched.h>
#include <time.h>

namespace kvc {
namespace {

void move(pthread_t thread, const cpu_set_t& to, const cpu_set_t& mask) noexcept {
  if (pthread_setaffinity_np(thread, sizeof to, &to) == 0) pthread_setaffinity_np(thread, sizeof mask, &mask);
}

}  // namespace

int current_cpu() noexcept { return sched_getcpu(); }

void leave_cpu(int cpu) noexcept {
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  cpu_set_t others = mask;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) > 0) move(pthread_self(), others, mask);
}

void move_to_cpu(pthread_t thread, int cpu) noexcept {
  cpu_set_t mask;
  if (cpu < 0 || cpu >= CPU_SETSIZE || pthread_getaffinity_np(thread, sizeof mask, &mask) != 0) return;
  if (!CPU_ISSET(cpu, &mask)) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  move(thread, one, mask);
}

int64_t cpu_time(pthread_t thread) noexcept {
  clockid_t clock;
  timespec time;
  if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace kvc

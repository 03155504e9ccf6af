#include "system/thread_place.h"

#include <windows.h>

namespace kvc {
namespace {

// The CPUs of a group have the numbers 0 to 63. Numbers of other groups are not used: ThreadPool's threads stay in the
// group of the process.
constexpr int kMaxCpus = 64;

DWORD_PTR bit_of(int cpu) noexcept { return DWORD_PTR{1} << cpu; }

// Sets the mask of a thread to `to`, and then back to what it was.
void move(HANDLE thread, DWORD_PTR to) noexcept {
  const DWORD_PTR mask = SetThreadAffinityMask(thread, to);
  if (mask != 0) SetThreadAffinityMask(thread, mask);
}

DWORD_PTR process_mask() noexcept {
  DWORD_PTR own = 0, all = 0;
  return GetProcessAffinityMask(GetCurrentProcess(), &own, &all) ? own : 0;
}

}  // namespace

int current_cpu() noexcept { return static_cast<int>(GetCurrentProcessorNumber()); }

void leave_cpu(int cpu) noexcept {
  if (cpu < 0 || cpu >= kMaxCpus) return;
  const DWORD_PTR others = process_mask() & ~bit_of(cpu);
  if (others != 0) move(GetCurrentThread(), others);
}

void move_to_cpu(pthread_t thread, int cpu) noexcept {
  if (cpu < 0 || cpu >= kMaxCpus || (process_mask() & bit_of(cpu)) == 0) return;
  move(pthread_gethandle(thread), bit_of(cpu));
}

int64_t cpu_time(pthread_t thread) noexcept {
  ULONG64 cycles = 0;
  return QueryThreadCycleTime(pthread_gethandle(thread), &cycles) ? static_cast<int64_t>(cycles) : -1;
}

}  // namespace kvc

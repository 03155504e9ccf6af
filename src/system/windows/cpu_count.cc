#include "system/cpu_count.h"

#include <windows.h>

#include <algorithm>
#include <bit>

namespace kvc {

// A processor group of Windows has at most 64 CPUs. On a machine with more CPUs, only those of one group are counted:
// the primary group of the process. Before Windows 11, the mask of a process with threads in several groups is 0.
int affinity_cpus() {
  DWORD_PTR own = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
  if (own == 0) return std::max<int>(1, static_cast<int>(GetActiveProcessorCount(0)));
  return std::popcount(static_cast<uint64_t>(own));
}

int cgroup_cpus(const CgroupFiles&) { return 0; }

int default_num_threads(const CgroupFiles&) { return affinity_cpus(); }

}  // namespace kvc

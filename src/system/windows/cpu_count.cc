#include "system/cpu_count.h"

#include <windows.h>

#include <algorithm>
#include <bit>

namespace kvc {

// A process group has at most 64 CPUs. On a machine with more, the CPUs of the process's first group are counted.
int affinity_cpus() {
  DWORD_PTR own = 0, all = 0;
  if (!GetProcessAffinityMask(GetCurrentProcess(), &own, &all)) return 1;
  return std::max(1, std::popcount(static_cast<uint64_t>(own)));
}

int cgroup_cpus(const CgroupFiles&) { return 0; }

int default_num_threads(const CgroupFiles&) { return affinity_cpus(); }

}  // namespace kvc

// Finds how many threads this process may use. This is the default of kvc_context_config.num_threads.
// Thread safety: any thread. The functions read files and the calling thread's affinity mask, and keep nothing.
#pragma once

#include <string>

namespace kvc {

// The files in which Linux describes the process's control groups. Tests use other files.
struct CgroupFiles {
  std::string membership = "/proc/self/cgroup";
  std::string mount = "/sys/fs/cgroup";
};

// Returns the number of CPUs in the calling thread's affinity mask, at least 1.
int affinity_cpus();

// Returns the lowest CPU quota of the process's control group and of all groups above it (version 1 or 2), rounded up:
// 2.5 CPUs give 3. Returns 0 if no quota can be read.
int cgroup_cpus(const CgroupFiles& files = {});

// Returns the smaller of affinity_cpus and cgroup_cpus, or affinity_cpus if there is no quota.
int default_num_threads(const CgroupFiles& files = {});

}  // namespace kvc

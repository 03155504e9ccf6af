// How many threads this process may use: the default of kvc_context_config.num_threads.
// Thread safety: any thread; reads files and the calling thread's affinity mask, keeps nothing.
#pragma once

#include <string>

namespace kvc {

// Where the kernel tells the process's control groups; tests point it elsewhere.
struct CgroupFiles {
  std::string membership = "/proc/self/cgroup";
  std::string mount = "/sys/fs/cgroup";
};

// CPUs in the calling thread's affinity mask, at least 1.
int affinity_cpus();

// CPU quota of the process's control group and all groups above it, rounded up (2.5 CPUs are 3), version 1 or 2;
// 0 = no quota, or none that can be read.
int cgroup_cpus(const CgroupFiles& files = {});

// min(affinity_cpus, cgroup_cpus), at least 1.
int default_num_threads(const CgroupFiles& files = {});

}  // namespace kvc

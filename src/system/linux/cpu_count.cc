#include "system/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string_view>

namespace kvc {
namespace {

// Returns quota / period, rounded up to whole CPUs, or 0 if there is no limit.
int quota_cpus(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  return static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, 1e6));
}

// Reads a limit of cgroup version 2. The file has a quota and a period ("250000 100000"), or no limit ("max 100000").
int read_v2(const std::string& folder) {
  double quota = 0, period = 0;
  std::ifstream file(folder + "/cpu.max");
  if (!(file >> quota >> period)) return 0;  // "max" is not a number
  return quota_cpus(quota, period);
}

// Reads a limit of cgroup version 1. A quota of -1 means no limit.
int read_v1(const std::string& folder) {
  double quota = 0, period = 0;
  if (!(std::ifstream(folder + "/cpu.cfs_quota_us") >> quota)) return 0;
  if (!(std::ifstream(folder + "/cpu.cfs_period_us") >> period)) return 0;
  return quota_cpus(quota, period);
}

int tighter(int a, int b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// Returns the lowest limit of the control group at `path` and of the groups above it, up to the mount; 0 = no limit. In
// a container, `path` may exist only on the host. Then only the folder of the mount has a limit to read, and this is
// the limit of the container.
int walk_up(const std::string& mount, std::string path, int (*read)(const std::string&)) {
  int limit = 0;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    limit = tighter(limit, read(mount + path));
    if (path.empty()) return limit;
    const auto slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

bool has_controller(std::string_view controllers, std::string_view name) {
  while (!controllers.empty()) {
    const auto comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == name) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

int affinity_cpus() {
  // sched_getaffinity fails if the given mask is shorter than that of the system. So the loop tries longer masks.
  for (int capacity = CPU_SETSIZE; capacity <= (1 << 20); capacity *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(capacity), [](cpu_set_t* s) { CPU_FREE(s); });
    if (!set) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) == 0) return std::max(1, CPU_COUNT_S(bytes, set.get()));
  }
  return 1;
}

int cgroup_cpus(const CgroupFiles& files) {
  int limit = 0;
  std::ifstream membership(files.membership);
  for (std::string line; std::getline(membership, line);) {  // "hierarchy:controllers:path"
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      limit = tighter(limit, walk_up(files.mount, path, read_v2));
    } else if (has_controller(controllers, "cpu")) {
      // Distributions mount the controller under the list of all controllers of the hierarchy, such as "cpu,cpuacct",
      // or under "cpu". Often one name is a link to the other. So the limits under both names are read.
      limit = tighter(limit, walk_up(files.mount + "/" + controllers, path, read_v1));
      limit = tighter(limit, walk_up(files.mount + "/cpu", path, read_v1));
    }
  }
  return limit;
}

int default_num_threads(const CgroupFiles& files) { return std::max(1, tighter(affinity_cpus(), cgroup_cpus(files))); }

}  // namespace kvc

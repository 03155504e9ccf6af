#include "system/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

namespace kvc {
namespace {

namespace fs = std::filesystem;

class CpuCount : public ::testing::Test {
 protected:
  CpuCount() {
    std::string name = (fs::temp_directory_path() / "kvc_cgroup_XXXXXX").string();
    root_ = mkdtemp(name.data());
    files_ = {(root_ / "membership").string(), (root_ / "mount").string()};
  }
  ~CpuCount() override { fs::remove_all(root_); }

  void membership(const std::string& text) { std::ofstream(files_.membership) << text; }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / "mount" / path).parent_path());
    std::ofstream(root_ / "mount" / path) << text;
  }

  fs::path root_;
  CgroupFiles files_;
};

TEST_F(CpuCount, NoFilesMeanNoQuota) {
  EXPECT_EQ(cgroup_cpus(files_), 0);
  EXPECT_EQ(default_num_threads(files_), affinity_cpus());
}

TEST_F(CpuCount, Version2RoundsUp) {
  membership("0::/app\n");
  write("app/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 3);
  write("app/cpu.max", "200000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 2);
  write("app/cpu.max", "10000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 1);
  EXPECT_EQ(default_num_threads(files_), 1);
  write("app/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 0);
}

TEST_F(CpuCount, Version2TakesTheTightestOfAllAncestors) {
  membership("0::/a/b/c\n");
  write("a/b/c/cpu.max", "800000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 4);
}

TEST_F(CpuCount, ContainerWhosePathOnlyTheHostSees) {
  membership("0::/system.slice/docker-1234.scope\n");
  write("cpu.max", "150000 100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 2);
}

TEST_F(CpuCount, Version1) {
  membership("5:cpuacct,cpu:/job\n4:cpuset:/other\n0::/\n");
  write("cpuacct,cpu/job/cpu.cfs_quota_us", "550000\n");
  write("cpuacct,cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 6);
  write("cpuacct,cpu/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpus(files_), 0);
  write("cpu/cpu.cfs_quota_us", "700000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 7);
}

TEST_F(CpuCount, OtherControllersDoNotCount) {
  membership("4:cpuset:/job\n");
  write("cpuset/job/cpu.cfs_quota_us", "100000\n");
  write("cpuset/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(files_), 0);
}

TEST_F(CpuCount, NonsenseIsNoQuota) {
  membership("x\n0:\n::\n0::/app\n");
  write("app/cpu.max", "100000 0\n");
  EXPECT_EQ(cgroup_cpus(files_), 0);
  write("app/cpu.max", "abc\n");
  EXPECT_EQ(cgroup_cpus(files_), 0);
  write("app/cpu.max", "1e300 1\n");
  EXPECT_EQ(default_num_threads(files_), affinity_cpus());
}

TEST_F(CpuCount, FollowsTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(affinity_cpus(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(default_num_threads(files_), 1);
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace kvc

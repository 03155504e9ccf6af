// What tiers do to the process: descriptors, threads and their signals, and children of fork().
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "disk_driver.h"
#include "tier/host_tier.h"

namespace kvc {
namespace {

using namespace kvt;

TEST(DiskTier, ThreadsBlockSignalsAndStartLazily) {
  TemporaryFolder folder;
  const auto threads = [] {
    int64_t n = 0, blocked = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string line; std::getline(status, line);) {
        if (line.rfind("SigBlk:", 0) == 0) blocked += (std::stoull(line.substr(8), nullptr, 16) >> (SIGTERM - 1)) & 1;
      }
      ++n;
    }
    return std::pair(n, blocked);
  };
  TierDriver tier(open_disk(disk_options(folder)));
  std::thread([] {}).join();  // the thread sanitizer starts a thread of its own beside the first one of a process
  const auto before = threads();
  EXPECT_FALSE(tier.has(1));  // a miss may start threads, which search for files of other processes
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 10)), KVC_TIER_OK);
  EXPECT_EQ(threads().first, before.first + 4);
  EXPECT_EQ(threads().second, before.second + 4);
}

TEST(DiskTier, ChildOfForkIsRefused) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 10)), KVC_TIER_OK);
  const pid_t child = fork();
  if (child == 0) {
    const kvc_tier &t = tier.table();
    const kvc_tier_key key = key_of(1);
    kvc_tier_found found;
    t.lookup(t.self, 1, &key, &found);
    const kvc_tier_item item = {key, nullptr, 0, 0, 0};
    kvc_error error = KVC_ERROR_INIT;
    kvc_tier_completion done;
    bool good = found.result == KVC_TIER_MISS;
    good &= t.remove(t.self, 1, 1, &item, &error) == KVC_TIER_FAILED && error.code == KVC_ERROR_UNSUPPORTED;
    good &= t.poll(t.self, &done, 1) == 0;
    t.cancel(t.self, 1);
    const int64_t before = open_descriptors();
    t.close(t.self);
    const bool rings = (t.flags & KVC_TIER_READS_BY_IO_URING) != 0;
    good &= open_descriptors() == before - 3 - (rings ? 4 : 0);  // the directory, kvcache-tier, the event, and rings
    _exit(good ? 0 : 1);
  }
  int status;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  Bytes loaded(10, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, 10));
}

TEST(HostTier, AChildOfForkIsRefused) {
  kvc_tier table;
  kvc_tier_init(&table);
  ASSERT_TRUE(open_host_tier(int64_t{4} * 4096, &table).ok());
  TierDriver tier(table);
  ASSERT_EQ(tier.store(1, "one"), KVC_TIER_OK);
  const pid_t child = fork();
  if (child == 0) {
    Bytes data(3, 'x');
    Parts parts(key_of(1), &data);
    kvc_error error = KVC_ERROR_INIT;
    const kvc_tier &t = tier.table();
    const bool refused = !tier.has(1) && t.load(t.self, 9, 1, &parts.item(), &error) == KVC_TIER_FAILED;
    tier.close();
    _exit(refused && error.code == KVC_ERROR_UNSUPPORTED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(tier.has(1));
}

}  // namespace
}  // namespace kvc

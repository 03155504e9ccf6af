// Several processes on one directory, and processes that are killed.
//
//   KVC_TIER_KILLS   processes that are killed while they store (default 40)
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "disk_driver.h"

namespace kvc {
namespace {

using namespace kvt;

constexpr uint64_t kNumbers = 24;

// Sizes follow from the version, so that a key has files of several sizes.
size_t bytes_of(uint64_t version) { return 500 + version % 5 * 4000; }

struct Report {
  uint64_t number, version;
};

// Stores objects until it is killed, and reports each completion.
[[noreturn]] void store_until_killed(const DiskTierOptions &options, int pipe, uint64_t first_version) {
  TierDriver tier(open_disk(options));
  for (uint64_t version = first_version;; ++version) {
    const uint64_t number = version % kNumbers;
    if (tier.store(number, payload_of(number, version, bytes_of(version))) != KVC_TIER_OK) _exit(1);
    const Report report = {number, version};
    if (write(pipe, &report, sizeof report) != sizeof report) _exit(2);
  }
}

// A completed store survives kill -9. The object is that of the last completed store, or of a later one that was not
// reported, and never another one.
TEST(DiskProcess, KilledWhileItStores) {
  const char *text = getenv("KVC_TIER_KILLS");
  const int64_t kills = text ? atoll(text) : 40;
  std::mt19937_64 random(11);
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  std::map<uint64_t, uint64_t> completed;  // the latest version of each number
  uint64_t version = kNumbers;
  for (int64_t kill_number = 0; kill_number < kills && !HasFailure(); ++kill_number) {
    SCOPED_TRACE("kill " + std::to_string(kill_number));
    options.sync = static_cast<DiskSync>(kill_number % 3);
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(pipe_ends[0]);
      store_until_killed(options, pipe_ends[1], version);
    }
    close(pipe_ends[1]);
    Report report;
    ASSERT_EQ(read(pipe_ends[0], &report, sizeof report), static_cast<ssize_t>(sizeof report));
    completed[report.number] = version = report.version;
    usleep(static_cast<useconds_t>(random() % 8000));
    kill(child, SIGKILL);
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    while (read(pipe_ends[0], &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
      completed[report.number] = version = report.version;
    }
    close(pipe_ends[0]);

    TierDriver tier(open_disk(options));
    EXPECT_EQ(folder.files("tmp"), 0);
    const uint64_t unreported = version + 1;
    for (auto &[number, latest] : completed) {
      const kvc_tier_found found = tier.lookup(number);
      ASSERT_EQ(found.result, KVC_TIER_HIT) << number;
      Bytes loaded(static_cast<size_t>(found.bytes), 'x');
      ASSERT_EQ(tier.load(number, &loaded), KVC_TIER_OK) << number;
      const bool is_latest = loaded == payload_of(number, latest, bytes_of(latest));
      const bool is_unreported =
          number == unreported % kNumbers && loaded == payload_of(number, unreported, bytes_of(unreported));
      EXPECT_TRUE(is_latest || is_unreported) << number;
      if (is_unreported) latest = unreported;
    }
    EXPECT_EQ(tier.stats().damaged, 0);
    version += 2;  // one store may not have been reported
  }
}

// Each of three processes stores, loads and removes the same keys in a directory that is too small for them.
TEST(DiskProcess, ShareADirectory) {
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, 40 * 4096);
  options.rescan_ms = 5;
  std::vector<pid_t> children;
  for (uint64_t process = 0; process < 3; ++process) {
    const pid_t child = fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    std::mt19937_64 random(process);
    int64_t wrong = 0, loads = 0;
    {
      TierDriver tier(open_disk(options));
      for (int i = 0; i < 400; ++i) {
        const uint64_t number = random() % kNumbers, version = random() % 5;
        const uint64_t choice = random() % 10;
        if (choice < 4) {
          wrong += tier.store(number, payload_of(number, version, bytes_of(version))) != KVC_TIER_OK;
        } else if (choice < 9) {
          Bytes loaded(bytes_of(version), 'x');
          const int32_t result = tier.load(number, &loaded);
          wrong +=
              result == KVC_TIER_OK ? loaded != payload_of(number, version, loaded.size()) : result != KVC_TIER_MISS;
          loads += result == KVC_TIER_OK;
        } else {
          const int32_t result = tier.remove(number);
          wrong += result != KVC_TIER_OK && result != KVC_TIER_MISS;
        }
        tier.has(random() % kNumbers);
      }
      wrong += tier.stats().damaged;
    }
    _exit(wrong == 0 && loads > 0 ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  TierDriver tier(open_disk(options));
  EXPECT_LE(tier.stats().stored_bytes, options.capacity_bytes);
  EXPECT_EQ(folder.object_bytes(), tier.stats().stored_bytes);
}

// Lookups soon find what another process has stored or removed.
TEST(DiskProcess, SeesObjectsOfOthers) {
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  options.rescan_ms = 1;
  TierDriver one(open_disk(options)), two(open_disk(options));
  EXPECT_FALSE(two.has(1));
  ASSERT_EQ(one.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
  const auto becomes = [&](uint64_t number, bool stored) {
    for (int tries = 0; tries < 30000; ++tries) {
      two.has(999);  // a miss lets the tier search
      if (two.has(number) == stored) return true;
      usleep(1000);
    }
    return false;
  };
  EXPECT_TRUE(becomes(1, true));
  ASSERT_EQ(one.store(1, payload_of(1, 1, 5000)), KVC_TIER_OK);
  Bytes loaded(5000, 'x');
  EXPECT_EQ(two.load(1, &loaded), KVC_TIER_OK);  // it has the new size, and no scan has found it yet
  EXPECT_TRUE(loaded == payload_of(1, 1, 5000));
  ASSERT_EQ(one.remove(1), KVC_TIER_OK);
  EXPECT_TRUE(becomes(1, false));
  // A third tier in the directory is not alone, so it does not delete files that the others are writing.
  ASSERT_EQ(two.store(3, payload_of(3, 0, 100)), KVC_TIER_OK);
  TierDriver three(open_disk(options));
  ASSERT_EQ(one.store(4, payload_of(4, 0, 100)), KVC_TIER_OK);
  EXPECT_TRUE(three.has(3));
}

// If another process has used an object since, it is not the least recently used one.
TEST(DiskProcess, UsesOfOthersCount) {
  TemporaryFolder folder;
  static int64_t clock_ns;
  clock_ns = 1'700'000'000'000'000'000;
  DiskTierOptions options = disk_options(folder, 4 * 4096);
  options.wall_ns = [] { return clock_ns += 2'000'000'000; };
  TierDriver one(open_disk(options));
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(one.store(i, payload_of(i, 0, 100)), KVC_TIER_OK);
  TierDriver two(open_disk(options));
  Bytes loaded(100, 'x');
  ASSERT_EQ(two.load(0, &loaded), KVC_TIER_OK);
  ASSERT_EQ(one.store(4, payload_of(4, 0, 100)), KVC_TIER_OK);
  EXPECT_TRUE(one.has(0));
  EXPECT_FALSE(one.has(1));
}

}  // namespace
}  // namespace kvc

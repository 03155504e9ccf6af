// The disk tier as a table: each function, what survives a restart, what is refused.
#include "tier/disk_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "temporary_folder.h"
#include "tier_driver.h"

namespace kvc {
namespace {

using kvt::Bytes;
using kvt::key_of;
using kvt::Parts;
using kvt::payload_of;
using kvt::TierDriver;

DiskTierOptions options_of(const kvt::TemporaryFolder &folder, int64_t capacity_bytes = int64_t{1} << 30) {
  DiskTierOptions options;
  options.directory = folder.path();
  options.capacity_bytes = capacity_bytes;
  return options;
}

kvc_tier open(const DiskTierOptions &options) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  const Status status = open_disk_tier(options, &tier);
  EXPECT_TRUE(status.ok()) << status.message();
  return tier;
}

int64_t files_in(const std::string &folder) {
  int64_t files = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) files += entry.is_regular_file();
  return files;
}

TEST(DiskTier, StoresAndLoads) {
  kvt::TemporaryFolder folder;
  TierDriver tier(open(options_of(folder)));
  EXPECT_STREQ(tier.table().name, "disk");
  for (const size_t bytes : {0, 1, 3967, 3968, 3969, 65536, 2097152, 2097153, 7000001}) {
    const Bytes payload = payload_of(bytes, 0, bytes);
    EXPECT_EQ(tier.lookup(bytes).result, KVC_TIER_MISS);
    ASSERT_EQ(tier.store(bytes, payload), KVC_TIER_OK) << bytes;
    const kvc_tier_found found = tier.lookup(bytes);
    EXPECT_EQ(found.result, KVC_TIER_HIT);
    EXPECT_EQ(found.bytes, static_cast<int64_t>(bytes));
    Bytes loaded(bytes, 'x');
    ASSERT_EQ(tier.load(bytes, &loaded), KVC_TIER_OK) << bytes;
    EXPECT_EQ(loaded, payload) << bytes;
  }
  EXPECT_EQ(files_in(folder.path() + "/tmp"), 0);
}

TEST(DiskTier, ReplacesAndRemoves) {
  kvt::TemporaryFolder folder;
  TierDriver tier(open(options_of(folder)));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 5000)), KVC_TIER_OK);
  ASSERT_EQ(tier.store(1, payload_of(1, 1, 5000)), KVC_TIER_OK);
  Bytes loaded(5000, 'x');
  ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_EQ(loaded, payload_of(1, 1, 5000));
  ASSERT_EQ(tier.store(1, payload_of(1, 2, 9000)), KVC_TIER_OK);  // another size
  EXPECT_EQ(tier.lookup(1).bytes, 9000);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);  // of the size that it had
  EXPECT_EQ(tier.lookup(1).bytes, 9000);
  loaded.resize(9000);
  ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_EQ(loaded, payload_of(1, 2, 9000));
  EXPECT_EQ(files_in(folder.path()), 2);  // the object and kvcache-tier
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
  EXPECT_EQ(files_in(folder.path()), 1);
}

TEST(DiskTier, RestartFindsWhatWasThere) {
  kvt::TemporaryFolder folder;
  for (const DiskSync sync : {DiskSync::kNever, DiskSync::kData, DiskSync::kFull}) {
    const uint64_t number = static_cast<uint64_t>(sync);
    DiskTierOptions options = options_of(folder);
    options.sync = sync;
    TierDriver first(open(options));
    ASSERT_EQ(first.store(number, payload_of(number, 0, 100000)), KVC_TIER_OK);
    first.close();
    TierDriver second(open(options));
    ASSERT_EQ(second.lookup(number).bytes, 100000);
    Bytes loaded(100000, 'x');
    ASSERT_EQ(second.load(number, &loaded), KVC_TIER_OK);
    EXPECT_EQ(loaded, payload_of(number, 0, 100000));
  }
}

// A large directory is scanned by a thread. Until then, an object that may be there is PENDING, never a miss.
TEST(DiskTier, ScansLargeDirectoriesInTheBackground) {
  kvt::TemporaryFolder folder;
  DiskTierOptions options = options_of(folder);
  constexpr uint64_t kObjects = 600;
  {
    TierDriver tier(open(options));
    for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 10)), KVC_TIER_OK);
  }
  options.scan_at_open = 5;
  TierDriver tier(open(options));
  for (uint64_t i = 0; i < kObjects; ++i) {
    const kvc_tier_key key = key_of(i);
    kvc_tier_found found;
    tier.table().lookup(tier.table().self, 1, &key, &found);
    EXPECT_NE(found.result, KVC_TIER_MISS);
    EXPECT_EQ(tier.lookup(i).bytes, 10);
  }
  EXPECT_EQ(tier.lookup(kObjects).result, KVC_TIER_MISS);
}

TEST(DiskTier, EvictsTheObjectUsedLongestAgo) {
  kvt::TemporaryFolder folder;
  DiskTierOptions options = options_of(folder, 10 * 4096);
  {
    TierDriver tier(open(options));
    for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 100)), KVC_TIER_OK);
    Bytes loaded(100, 'x');
    ASSERT_EQ(tier.load(0, &loaded), KVC_TIER_OK);
    ASSERT_EQ(tier.store(10, payload_of(10, 0, 100)), KVC_TIER_OK);
    EXPECT_TRUE(tier.has(0));
    EXPECT_FALSE(tier.has(1));
    ASSERT_EQ(tier.store(11, payload_of(11, 0, 3 * 4096 - 128)), KVC_TIER_OK);
    for (uint64_t i = 2; i < 5; ++i) EXPECT_FALSE(tier.has(i)) << i;
    EXPECT_EQ(tier.stats().evictions, 4);
    EXPECT_EQ(tier.stats().stored_bytes, 10 * 4096);
  }
  options.capacity_bytes = 2 * 4096;  // a smaller capacity holds from open on
  TierDriver tier(open(options));
  EXPECT_FALSE(tier.has(10));
  EXPECT_LE(tier.stats().stored_bytes, 2 * 4096);
}

}  // namespace
}  // namespace kvc

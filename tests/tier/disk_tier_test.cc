// The disk tier through its table: each function, restarts, and refused arguments.
#include "tier/disk_tier.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "disk_driver.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

using namespace kvt;

TEST(DiskTier, StoresAndLoads) {
  TemporaryFolder folder(TemporaryFolder::kDisk);
  TierDriver tier(open_disk(disk_options(folder)));
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
    EXPECT_TRUE(loaded == payload) << bytes;
  }
  EXPECT_EQ(folder.files("tmp"), 0);
}

TEST(DiskTier, ReplacesAndRemoves) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 5000)), KVC_TIER_OK);
  ASSERT_EQ(tier.store(1, payload_of(1, 1, 5000)), KVC_TIER_OK);
  Bytes loaded(5000, 'x');
  ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 1, 5000));
  ASSERT_EQ(tier.store(1, payload_of(1, 2, 9000)), KVC_TIER_OK);  // another size
  EXPECT_EQ(tier.lookup(1).bytes, 9000);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);  // the request has the old size
  EXPECT_EQ(tier.lookup(1).bytes, 9000);
  loaded.resize(9000);
  ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 2, 9000));
  EXPECT_EQ(folder.files(), 2);  // the object and kvcache-tier
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
  EXPECT_EQ(folder.files(), 1);
}

TEST(DiskTier, KeysWithOneHashAreApart) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  check_colliding_keys(tier);
}

TEST(DiskTier, RestartFindsWhatWasThere) {
  TemporaryFolder folder;
  for (const DiskSync sync : {DiskSync::kNever, DiskSync::kData, DiskSync::kFull}) {
    const uint64_t number = static_cast<uint64_t>(sync);
    DiskTierOptions options = disk_options(folder);
    options.sync = sync;
    TierDriver first(open_disk(options));
    ASSERT_EQ(first.store(number, payload_of(number, 0, 100000)), KVC_TIER_OK);
    first.close();
    TierDriver second(open_disk(options));
    ASSERT_EQ(second.lookup(number).bytes, 100000);
    Bytes loaded(100000, 'x');
    ASSERT_EQ(second.load(number, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(number, 0, 100000));
  }
}

// A large directory is scanned by a thread. Until then, an object that may be there is PENDING, never a miss.
TEST(DiskTier, ScansLargeDirectoriesInTheBackground) {
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  constexpr uint64_t kObjects = 600;
  {
    TierDriver tier(open_disk(options));
    for (uint64_t i = 0; i < kObjects; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 10)), KVC_TIER_OK);
  }
  options.scan_at_open = 5;
  TierDriver tier(open_disk(options));
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
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, 10 * 4096);
  {
    TierDriver tier(open_disk(options));
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
  options.capacity_bytes = 2 * 4096;  // a smaller capacity takes effect at open
  TierDriver tier(open_disk(options));
  EXPECT_FALSE(tier.has(10));
  EXPECT_LE(tier.stats().stored_bytes, 2 * 4096);
}

// Objects that exactly fill a tier evict nothing, also while several threads store them: at no time is an object
// counted beside the room that its store has reserved.
TEST(DiskTier, ExactlyFullIsNotTooFull) {
  constexpr int64_t kObjects = 64;
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, kObjects * 4096);
  options.threads = 4;
  for (int round = 0; round < 200 && !HasFailure(); ++round) {
    TierDriver tier(open_disk(options));
    Bytes data = payload_of(1, 0, 100);
    const kvc_tier_buffer buffer = {data.data(), 100};
    std::vector<kvc_tier_item> items;
    for (uint64_t i = 0; i < kObjects; ++i) items.push_back({key_of(i), &buffer, 1, 0, 100});
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(tier.table().store(tier.table().self, 1, kObjects, items.data(), &error), KVC_TIER_OK) << error.message;
    tier.wait(kObjects);
    ASSERT_EQ(tier.stats().evictions, 0);
    ASSERT_EQ(tier.stats().objects, kObjects);
    ASSERT_EQ(tier.table().remove(tier.table().self, 2, kObjects, items.data(), &error), KVC_TIER_OK) << error.message;
    tier.wait(kObjects);
  }
}

// A full tier overwrites the files that it evicts, but not with another policy, and never a file of another size.
TEST(DiskTier, RecyclesFiles) {
  for (const DiskSync sync : {DiskSync::kNever, DiskSync::kData}) {
    TemporaryFolder folder;
    DiskTierOptions options = disk_options(folder, 4 * 8192);
    options.sync = sync;
    TierDriver tier(open_disk(options));
    const auto inode_of = [&](uint64_t number, int64_t bytes) {
      const std::string path = folder.path() + "/" + object_name(key_of(number), bytes);
      FileStatus status;
      system_file_ops().status_at(FileOps::kWorkingFolder, path.c_str(), &status);
      return status.inode;
    };
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 5000)), KVC_TIER_OK);
    const uint64_t first = inode_of(0, 5000), second = inode_of(1, 5000);
    ASSERT_EQ(tier.store(4, payload_of(4, 0, 4500)), KVC_TIER_OK);  // as many blocks
    EXPECT_EQ(inode_of(4, 4500) == first, sync == DiskSync::kNever);
    ASSERT_EQ(tier.store(5, payload_of(5, 0, 100)), KVC_TIER_OK);
    EXPECT_TRUE(sync == DiskSync::kData || inode_of(5, 100) != second);
    Bytes loaded(4500, 'x'), old(5000, 'x');
    EXPECT_EQ(tier.load(4, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(4, 0, 4500));
    EXPECT_EQ(tier.load(0, &old), KVC_TIER_MISS);
    EXPECT_EQ(tier.stats().evictions, 2);
    EXPECT_EQ(folder.files("tmp"), 0);
  }
}

// A use is written into the file, so the order survives a restart.
TEST(DiskTier, RestartKeepsTheOrderOfUse) {
  TemporaryFolder folder;
  const DiskTierOptions options = disk_options(folder, 4 * 4096);
  static int64_t clock_ns;
  DiskTierOptions timed = options;
  timed.wall_ns = [] { return clock_ns += 2'000'000'000; };
  clock_ns = 1'700'000'000'000'000'000;
  {
    TierDriver tier(open_disk(timed));
    for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 100)), KVC_TIER_OK);
    Bytes loaded(100, 'x');
    ASSERT_EQ(tier.load(0, &loaded), KVC_TIER_OK);
  }
  TierDriver tier(open_disk(timed));
  ASSERT_EQ(tier.store(4, payload_of(4, 0, 100)), KVC_TIER_OK);
  EXPECT_TRUE(tier.has(0));
  EXPECT_FALSE(tier.has(1));
}

// The clock jumps far ahead, back to 1970, and into the next century. The order of use does not change by that.
TEST(DiskTier, ClockThatJumps) {
  static int64_t clock_ns;
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, 4 * 4096);
  options.wall_ns = [] { return clock_ns; };
  const int64_t jumps[] = {1'700'000'000'000'000'000, 4'300'000'000'000'000'000, 0, -5, 1'700'000'000'000'000'001, 1};
  uint64_t number = 0;
  for (const int64_t jump : jumps) {
    clock_ns = jump;
    TierDriver tier(open_disk(options));
    for (int i = 0; i < 3; ++i, ++number) {
      ASSERT_EQ(tier.store(number, payload_of(number, 0, 100)), KVC_TIER_OK);
      for (uint64_t back = 0; back < 8 && back <= number; ++back) {
        EXPECT_EQ(tier.has(number - back), back < 4) << number << " - " << back;
      }
    }
  }
}

TEST(DiskTier, FullQueueIsRefusedWhole) {
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  options.max_items = 8;
  TierDriver tier(open_disk(options));
  Bytes payload = payload_of(1, 0, 100);
  Parts parts(key_of(1), &payload);
  std::vector<kvc_tier_item> items(9, parts.item());
  kvc_error error = KVC_ERROR_INIT;
  const kvc_tier &t = tier.table();
  EXPECT_EQ(t.max_job_items, 8);
  EXPECT_EQ(t.store(t.self, 1, 9, items.data(), &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_BATCH_TOO_LARGE);
  EXPECT_EQ(error.required, 9);
  EXPECT_EQ(error.available, 8);
  EXPECT_EQ(t.store(t.self, 1, 5, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(t.store(t.self, 2, 4, items.data(), &error), KVC_TIER_RETRY);  // they count until they are polled
  EXPECT_EQ(tier.stats().open_items, 5);
  EXPECT_EQ(t.store(t.self, 2, 3, items.data(), &error), KVC_TIER_OK);
  const auto done = tier.wait(8);
  ASSERT_EQ(done.size(), 8u);
  for (const kvc_tier_completion &one : done) EXPECT_EQ(one.result, KVC_TIER_OK);
  EXPECT_EQ(t.store(t.self, 3, 8, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(tier.wait(8).size(), 8u);
  EXPECT_EQ(tier.stats().stores, 16);
}

TEST(DiskTier, WrongArgumentsAreRefused) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder, 1 << 20)));
  const kvc_tier &t = tier.table();
  kvc_error error = KVC_ERROR_INIT;
  char byte = 0;
  const kvc_tier_buffer none[] = {{nullptr, 4}}, negative[] = {{&byte, -1}}, one[] = {{&byte, 1}},
                        vast[] = {{&byte, INT64_MAX}, {&byte, INT64_MAX}};
  const struct {
    int64_t n;
    kvc_tier_item item;
    kvc_status code;
    const char *says;
  } cases[] = {
      {0, {key_of(1), one, 1, 0, 1}, KVC_ERROR_INVALID_ARGUMENT, "store: a job of 0 items"},
      {-1, {key_of(1), one, 1, 0, 1}, KVC_ERROR_INVALID_ARGUMENT, "store: a job of -1 items"},
      {1, {key_of(1), one, 1, 7, 1}, KVC_ERROR_UNSUPPORTED, "store: item 0: flags 0x7 has unknown bits"},
      {1, {key_of(1), one, -1, 0, 1}, KVC_ERROR_INVALID_ARGUMENT, "store: item 0: num_buffers is -1"},
      {1, {key_of(1), nullptr, 1, 0, 1}, KVC_ERROR_NULL_ARGUMENT, "store: item 0: buffers is NULL"},
      {1, {key_of(1), none, 1, 0, 4}, KVC_ERROR_NULL_ARGUMENT, "store: item 0: buffer 0 has 4 bytes at NULL"},
      {1, {key_of(1), negative, 1, 0, -1}, KVC_ERROR_INVALID_ARGUMENT, "store: item 0: buffer 0 has -1 bytes"},
      {1, {key_of(1), one, 1, 0, 2}, KVC_ERROR_INVALID_ARGUMENT, "store: item 0: bytes is 2, and its buffers have 1"},
      {1,
       {key_of(1), vast, 2, 0, -2},
       KVC_ERROR_INVALID_ARGUMENT,
       "store: item 0: buffer 1 has 9223372036854775807 bytes"},
      {1,
       {key_of(1), vast, 1, 0, INT64_MAX},
       KVC_ERROR_INVALID_ARGUMENT,
       "store: item 0: 9223372036854775807 bytes; the tier takes 1048448"},
  };
  for (const auto &one_case : cases) {
    EXPECT_EQ(t.store(t.self, 1, one_case.n, &one_case.item, &error), KVC_TIER_FAILED) << one_case.says;
    EXPECT_EQ(error.code, one_case.code) << one_case.says;
    EXPECT_STREQ(error.message, one_case.says);
  }
  EXPECT_EQ(t.load(t.self, 1, 1, nullptr, &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_NULL_ARGUMENT);
  EXPECT_EQ(tier.stats().open_items, 0);
  EXPECT_FALSE(tier.has(1));

  for (DiskTierOptions bad : {disk_options(folder, 4095), disk_options(folder, -1)}) {
    kvc_tier table;
    EXPECT_EQ(open_disk_tier(bad, &table).code(), KVC_ERROR_INVALID_ARGUMENT);
  }
}

TEST(DiskTier, CancelledItemsCompleteOnce) {
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  options.threads = 1;
  TierDriver tier(open_disk(options));
  const kvc_tier &t = tier.table();
  Bytes large = payload_of(1, 0, 4 << 20);
  Parts parts(key_of(1), &large);
  std::vector<kvc_tier_item> items(32, parts.item());
  for (size_t i = 0; i < items.size(); ++i) items[i].key = key_of(i);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(t.store(t.self, 7, 32, items.data(), &error), KVC_TIER_OK);
  ASSERT_EQ(t.store(t.self, 8, 1, items.data(), &error), KVC_TIER_OK);
  t.cancel(t.self, 7);
  t.cancel(t.self, 7);
  t.cancel(t.self, 99);
  std::vector<int> seen(32);
  int64_t cancelled = 0;
  const auto all = tier.wait(33);
  ASSERT_EQ(all.size(), 33u);
  for (const kvc_tier_completion &done : all) {
    if (done.job == 8) {
      EXPECT_EQ(done.result, KVC_TIER_OK);
      continue;
    }
    ++seen[static_cast<size_t>(done.index)];
    cancelled += done.result == KVC_TIER_CANCELLED;
    const uint64_t number = static_cast<uint64_t>(done.index);
    EXPECT_TRUE(number == 0 || tier.has(number) == (done.result == KVC_TIER_OK)) << number;
  }
  EXPECT_EQ(seen, std::vector<int>(32, 1));
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(tier.stats().cancelled, cancelled);
  EXPECT_EQ(tier.stats().open_items, 0);
}

// While an object is being stored, it is PENDING.
TEST(DiskTier, PendingUntilStored) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  const kvc_tier &t = tier.table();
  Bytes payload = payload_of(1, 0, 32 << 20);
  Parts parts(key_of(1), &payload);
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(t.store(t.self, 1, 1, &parts.item(), &error), KVC_TIER_OK);
  const kvc_tier_key key = key_of(1);
  kvc_tier_found found;
  t.lookup(t.self, 1, &key, &found);
  EXPECT_EQ(found.result, KVC_TIER_PENDING);
  tier.wait(1);
  t.lookup(t.self, 1, &key, &found);
  EXPECT_EQ(found.result, KVC_TIER_HIT);
}

TEST(DiskTier, CloseWithOpenJobs) {
  const int64_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    TemporaryFolder folder;
    Bytes payload = payload_of(1, 0, 1 << 20);
    Parts parts(key_of(1), &payload);
    std::vector<kvc_tier_item> items(64, parts.item());
    kvc_tier tier = open_disk(disk_options(folder));
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(tier.store(tier.self, 1, 64, items.data(), &error), KVC_TIER_OK);
    if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(round));
    tier.close(tier.self);
    EXPECT_EQ(folder.files("tmp"), 0);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(DiskTier, OpensOnlyItsOwnDirectory) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/thesis.txt") << "the only copy";
  kvc_tier tier;
  kvc_tier_init(&tier);
  Status status = open_disk_tier(disk_options(folder), &tier);
  EXPECT_EQ(status.code(), KVC_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(status.message()).find("not empty"), std::string::npos) << status.message();
  EXPECT_EQ(folder.files(), 1);

  TemporaryFolder other;
  std::ofstream(other.path() + "/kvcache-tier") << "libkvcache disk tier, version 2\n";
  status = open_disk_tier(disk_options(other), &tier);
  EXPECT_EQ(status.code(), KVC_ERROR_UNSUPPORTED) << status.message();

  TemporaryFolder torn;  // a crash wrote half of the marker
  std::ofstream(torn.path() + "/kvcache-tier") << "libkvcache di";
  EXPECT_TRUE(open_disk_tier(disk_options(torn), &tier).ok());
  tier.close(tier.self);

  DiskTierOptions missing = disk_options(torn);
  missing.directory += "/a/b";
  EXPECT_EQ(open_disk_tier(missing, &tier).code(), KVC_ERROR_IO);
}

TEST(DiskTier, MeasuresItself) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  EXPECT_EQ(tier.stats().load_bytes_per_second, 0);
  for (uint64_t i = 0; i < 10; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 100000)), KVC_TIER_OK);
  Bytes loaded(100000, 'x');
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(tier.load(i, &loaded), KVC_TIER_OK);
  EXPECT_EQ(tier.load(100, &loaded), KVC_TIER_MISS);
  EXPECT_EQ(tier.remove(0), KVC_TIER_OK);
  EXPECT_TRUE(tier.has(1));
  EXPECT_FALSE(tier.has(0));
  const kvc_tier_stats stats = tier.stats();
  EXPECT_EQ(stats.objects, 9);
  EXPECT_EQ(stats.stored_bytes, 9 * 102400);
  EXPECT_EQ(stats.capacity_bytes, int64_t{1} << 30);
  EXPECT_EQ(stats.stores, 10);
  EXPECT_EQ(stats.loads, 8);
  EXPECT_EQ(stats.removes, 1);
  EXPECT_EQ(stats.misses, 1);
  EXPECT_EQ(stats.lookups, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.written_bytes, 1000000);
  EXPECT_EQ(stats.loaded_bytes, 800000);
  EXPECT_GT(stats.load_bytes_per_second, 0);
  EXPECT_GT(stats.store_bytes_per_second, 0);
  EXPECT_GT(stats.load_latency_ns, 0);
  EXPECT_GT(stats.store_latency_ns, 0);

  kvc_tier_stats older;  // of a caller whose struct ends earlier
  kvc_tier_stats_init(&older);
  older.struct_size = offsetof(kvc_tier_stats, stored_bytes);
  older.stored_bytes = 77;
  tier.table().stats(tier.table().self, &older);
  EXPECT_EQ(older.objects, 9);
  EXPECT_EQ(older.stored_bytes, 77);
  EXPECT_EQ(older.struct_size, offsetof(kvc_tier_stats, stored_bytes));
}

}  // namespace
}  // namespace kvc

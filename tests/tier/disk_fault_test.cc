// System calls that fail. Whichever fails, a load gives the stored bytes, misses, or fails. Nothing hangs, and nothing
// leaks.
#include <chrono>
#include <memory>
#include <thread>

#include "disk_driver.h"
#include "faulty_ops.h"

namespace kvc {
namespace {

using namespace kvt;

constexpr size_t kBytes = 9000;

// The life of a tier with two keys. The first one is stored twice with different sizes.
void live(const DiskTierOptions &options) {
  kvc_tier table;
  kvc_tier_init(&table);
  if (!open_disk_tier(options, &table).ok()) return;
  TierDriver tier(table);
  const auto check_load = [&](uint64_t number, size_t bytes) {
    Bytes loaded(bytes, 'x');
    if (tier.load(number, &loaded) != KVC_TIER_OK) return;
    bool known = false;
    for (uint64_t version = 0; version < 3; ++version) known |= loaded == payload_of(number, version, bytes);
    EXPECT_TRUE(known) << "wrong bytes";
  };
  for (uint64_t version = 0; version < 2; ++version) {
    const bool stored = tier.store(1, payload_of(1, version, kBytes + version)) == KVC_TIER_OK;
    EXPECT_TRUE(!stored || tier.lookup(1).bytes == static_cast<int64_t>(kBytes + version));
    check_load(1, kBytes + version);
  }
  tier.store(2, payload_of(2, 0, 5 * 4096));  // does not fit beside the other
  check_load(2, 5 * 4096);
  check_load(1, kBytes + 1);
  tier.store(3, payload_of(3, 0, 5 * 4096));  // takes the place of the second
  check_load(3, 5 * 4096);
  check_load(2, 5 * 4096);
  EXPECT_TRUE(tier.remove(2) != KVC_TIER_OK || !tier.has(2));
}

// The calls of `live` fail in turn: the N-th only, or all from the N-th on.
TEST(DiskFault, EveryCallFails) {
  const auto options_of = [](const TemporaryFolder &folder, FaultyOps *ops) {
    DiskTierOptions options = disk_options(folder, 6 * 4096);
    options.ops = ops;
    options.threads = 1;
    options.sync = DiskSync::kFull;
    options.rescan_ms = 1 << 30;
    return options;
  };
  int64_t calls, calls_of_open;
  {
    TemporaryFolder folder;
    FaultyOps ops;
    TierDriver(open_disk(options_of(folder, &ops))).close();
    calls_of_open = ops.calls;
  }
  {
    TemporaryFolder folder;
    FaultyOps ops;
    live(options_of(folder, &ops));
    calls = ops.calls;
  }
  EXPECT_GT(calls, calls_of_open + 40);
  const int64_t before = open_descriptors();
  for (const int error : {EIO, ENOSPC, EMFILE}) {
    for (const int64_t count : {int64_t{1}, INT64_MAX / 2}) {
      if (count > 1 && error != EIO) continue;
      for (int64_t n = 0; n < calls && !HasFailure(); ++n) {
        if (n > 20 && n < calls_of_open && n % 32 != 0) continue;  // two calls for each of 256 empty folders
        SCOPED_TRACE("error " + std::to_string(error) + ", " + std::to_string(count) + " calls from " +
                     std::to_string(n));
        TemporaryFolder folder;
        FaultyOps ops;
        DiskTierOptions options = options_of(folder, &ops);
        if (error == EMFILE) options.sync = DiskSync::kNever;  // files are recycled
        ops.error = error;
        ops.fail_count = count;
        ops.fail_from = n;
        live(options);
        EXPECT_EQ(open_descriptors(), before);
        ops.fail_from = -1;
        live(options);  // now the disk works again
        EXPECT_EQ(folder.files("tmp"), 0);
        EXPECT_EQ(open_descriptors(), before);
      }
    }
  }
}

TEST(DiskFault, ShortTransfersAreContinued) {
  TemporaryFolder folder;
  FaultyOps ops;
  ops.short_transfers = true;
  DiskTierOptions options = disk_options(folder);
  options.ops = &ops;
  TierDriver tier(open_disk(options));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 50000)), KVC_TIER_OK);
  Bytes loaded(50000, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, 50000));
}

TEST(DiskFault, FullDisk) {
  TemporaryFolder folder;
  FaultyOps ops;
  DiskTierOptions options = disk_options(folder);
  options.ops = &ops;
  TierDriver tier(open_disk(options));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  for (int64_t room = 0; room < 3 * 4096; room += 4096) {
    ops.room_bytes = room;
    EXPECT_EQ(tier.store(1, payload_of(1, 1, kBytes)), KVC_TIER_FAILED);
    EXPECT_EQ(tier.os_error(), ENOSPC);
    EXPECT_EQ(tier.store(2, payload_of(2, 0, kBytes)), KVC_TIER_FAILED);
    EXPECT_FALSE(tier.has(2));
    EXPECT_EQ(folder.files("tmp"), 0);
  }
  EXPECT_EQ(tier.stats().last_os_error, ENOSPC);
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, kBytes));
  ops.room_bytes = INT64_MAX;
  EXPECT_EQ(tier.store(2, payload_of(2, 0, kBytes)), KVC_TIER_OK);
}

// An object that the disk can no longer read is forgotten, so that it is computed and stored again.
TEST(DiskFault, UnreadableObjectIsForgotten) {
  TemporaryFolder folder;
  FaultyOps ops;
  DiskTierOptions options = disk_options(folder);
  options.ops = &ops;
  TierDriver tier(open_disk(options));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  Bytes loaded(kBytes, 'x');
  ops.fail_from = ops.calls + 2;  // after open and fstat
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), EIO);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.store(1, payload_of(1, 1, kBytes)), KVC_TIER_OK);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 1, kBytes));
}

// If an object is evicted while a thread reads it, the index does not contain it afterwards.
TEST(DiskFault, EvictedWhileItIsRead) {
  class PausedOps : public FileOps {
   public:
    std::atomic<bool> pause{false}, reached{false};
    int64_t read_at(int fd, void *data, int64_t bytes, int64_t offset) override {
      const int64_t got = FileOps::read_at(fd, data, bytes, offset);
      for (reached = pause.load(); pause;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return got;
    }
    void read_many(ReadRing &ring, FileRead *reads, int n, const std::function<void(int)> &done) override {
      FileOps::read_many(ring, reads, n, [&](int i) {
        for (reached = pause.load(); pause;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        done(i);
      });
    }
  };
  for (const DiskSync sync : {DiskSync::kData, DiskSync::kNever}) {
    TemporaryFolder folder;
    PausedOps ops;
    DiskTierOptions options = disk_options(folder, 4096);
    options.ops = &ops;
    options.sync = sync;
    TierDriver tier(open_disk(options));
    ASSERT_EQ(tier.store(1, payload_of(1, 0, 100)), KVC_TIER_OK);
    Bytes loaded(100, 'x');
    Parts parts(key_of(1), &loaded);
    kvc_error error = KVC_ERROR_INIT;
    ops.pause = true;
    ASSERT_EQ(tier.table().load(tier.table().self, 99, 1, &parts.item(), &error), KVC_TIER_OK);
    while (!ops.reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(tier.store(2, payload_of(2, 0, 100)), KVC_TIER_OK);
    ops.pause = false;
    const auto done = tier.wait(1);
    ASSERT_EQ(done.size(), 1u);
    EXPECT_EQ(done[0].result, KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(1, 0, 100));
    EXPECT_EQ(tier.stats().objects, 1);
    EXPECT_FALSE(tier.has(1));
    EXPECT_TRUE(tier.has(2));
  }
}

// A store that does not fit beside another open store completes as RETRY, and evicts nothing.
TEST(DiskFault, NothingIsEvictedForAStoreThatCannotFit) {
  class PausedOps : public FileOps {
   public:
    std::atomic<bool> pause{false}, reached{false};
    int64_t write_at(int fd, const void *data, int64_t bytes, int64_t offset) override {
      for (reached = pause.load(); pause;) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return FileOps::write_at(fd, data, bytes, offset);
    }
  };
  TemporaryFolder folder;
  PausedOps ops;
  DiskTierOptions options = disk_options(folder, 5 * 4096);
  options.ops = &ops;
  TierDriver tier(open_disk(options));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, 3900)), KVC_TIER_OK);
  ASSERT_EQ(tier.store(2, payload_of(2, 0, 3900)), KVC_TIER_OK);
  Bytes data = payload_of(3, 0, 3 * 4096 - 500);
  Parts parts(key_of(3), &data);
  kvc_error error = KVC_ERROR_INIT;
  ops.pause = true;
  ASSERT_EQ(tier.table().store(tier.table().self, 99, 1, &parts.item(), &error), KVC_TIER_OK);
  while (!ops.reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(tier.store(4, payload_of(4, 0, 3 * 4096 - 500)), KVC_TIER_RETRY);
  EXPECT_TRUE(tier.has(1));
  EXPECT_TRUE(tier.has(2));
  EXPECT_EQ(tier.stats().evictions, 0);
  EXPECT_EQ(folder.files("tmp"), 1);  // that of the open store
  ops.pause = false;
  EXPECT_EQ(tier.wait(1)[0].result, KVC_TIER_OK);
  EXPECT_EQ(tier.store(4, payload_of(4, 0, 3 * 4096 - 500)), KVC_TIER_OK);
  EXPECT_EQ(tier.stats().evictions, 3);
}

// A tier finds the directory empty of a marker, and another process makes the marker and its files before it looks on.
TEST(DiskFault, AnotherProcessOpensTheNewDirectoryMeanwhile) {
  class OvertakenOps : public FileOps {
   public:
    explicit OvertakenOps(const DiskTierOptions &options) : options_(options) {}
    int list(int folder, const std::function<void(const char *name)> &found) override {
      if (!other) other = std::make_unique<TierDriver>(open_disk(options_));
      return FileOps::list(folder, found);
    }
    std::unique_ptr<TierDriver> other;

   private:
    const DiskTierOptions options_;
  };
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  OvertakenOps ops(options);
  options.ops = &ops;
  TierDriver tier(open_disk(options));
  ASSERT_TRUE(ops.other);
  ASSERT_EQ(ops.other->store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, kBytes));
}

// A read-only file system serves its objects.
TEST(DiskFault, ReadOnlyDirectory) {
  class ReadOnlyOps : public FileOps {
   public:
    int open_at(int folder, const char *name, int flags, mode_t mode) override {
      const bool writes = (flags & (kvc::kOpenWrite | kvc::kOpenCreate | kvc::kOpenNew)) != 0;
      return writes ? -EROFS : FileOps::open_at(folder, name, flags, mode);
    }
    int rename_at(int, const char *, const char *) override { return -EROFS; }
    int unlink_at(int, const char *) override { return -EROFS; }
    int make_folder_at(int, const char *) override { return -EROFS; }
    int set_stamp(int, int64_t) override { return -EROFS; }
  };
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder);
  {
    TierDriver tier(open_disk(options));
    ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  }
  ReadOnlyOps ops;
  options.ops = &ops;
  options.capacity_bytes = 4096;  // less than there is, and nothing can be evicted
  TierDriver tier(open_disk(options));
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 0, kBytes));
  EXPECT_EQ(tier.store(2, payload_of(2, 0, 10)), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), EROFS);
  EXPECT_EQ(tier.remove(1), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), EROFS);
  EXPECT_FALSE(tier.has(2));
}

TEST(DiskFault, DirectoryThatVanishes) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  std::error_code refused;
  std::filesystem::remove_all(folder.path(), refused);
  if (refused) GTEST_SKIP() << "this system keeps folders that are open";
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_FALSE(tier.has(1));
  EXPECT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_FAILED);
  EXPECT_EQ(tier.os_error(), ENOENT);
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
}

// Folders that another program deletes are made again.
TEST(DiskFault, FoldersThatVanish) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  ASSERT_EQ(tier.store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
  for (const auto &entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.is_directory()) std::filesystem::remove_all(entry.path());
  }
  Bytes loaded(kBytes, 'x');
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_EQ(tier.store(1, payload_of(1, 1, kBytes)), KVC_TIER_OK);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_OK);
  EXPECT_TRUE(loaded == payload_of(1, 1, kBytes));
}

}  // namespace
}  // namespace kvc

// Files that differ from what the tier wrote: flipped bits, other lengths, other objects, things that are not files.
// Each is a miss, and is deleted.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "disk_driver.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

using namespace kvt;

class DiskDamage : public testing::Test {
 protected:
  static constexpr size_t kBytes = 10000;

  void SetUp() override {
    tier_ = std::make_unique<TierDriver>(open_disk(options()));
    ASSERT_EQ(tier_->store(1, payload_of(1, 0, kBytes)), KVC_TIER_OK);
    good_ = read(path(1));
    ASSERT_EQ(good_.size(), 3 * 4096u);
  }

  // There is at most one scan for files of other processes, because more would find files that a test is writing.
  DiskTierOptions options() const {
    DiskTierOptions options = disk_options(folder_);
    options.rescan_ms = 1 << 30;
    return options;
  }
  std::string path(uint64_t number, int64_t bytes = kBytes) const {
    return folder_.path() + "/" + object_name(key_of(number), bytes);
  }
  static Bytes read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
  }
  static void write(const std::string &path, const Bytes &bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  bool exists(const std::string &path) const {
    struct stat status;
    return lstat(path.c_str(), &status) == 0;
  }
  // Gives the file of object 1 these bytes. A load then misses, and the file is deleted. The first miss of a lookup
  // requests a scan, which may find the file before the load does.
  void expect_miss(const Bytes &bytes, const std::string &what) {
    const int64_t damaged = tier_->stats().damaged;
    write(path(1), bytes);
    Bytes loaded(kBytes, 'x');
    EXPECT_EQ(tier_->load(1, &loaded), KVC_TIER_MISS) << what;
    EXPECT_FALSE(exists(path(1))) << what;
    EXPECT_EQ(tier_->stats().damaged, damaged + 1) << what;
    EXPECT_FALSE(tier_->has(1)) << what;
  }
  void expect_good() {
    write(path(1), good_);
    Bytes loaded(kBytes, 'x');
    EXPECT_EQ(tier_->load(1, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(1, 0, kBytes));
  }

  TemporaryFolder folder_;
  std::unique_ptr<TierDriver> tier_;
  Bytes good_;
};

TEST_F(DiskDamage, EveryBitOfTheHeader) {
  for (size_t bit = 0; bit < 128 * 8; ++bit) {
    Bytes bytes = good_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    expect_miss(bytes, "bit " + std::to_string(bit));
  }
  expect_good();
}

TEST_F(DiskDamage, BitsOfThePayload) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    Bytes bytes = good_;
    const size_t at = i == 0 ? 128 : i == 1 ? 128 + kBytes - 1 : 128 + random() % kBytes;
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    expect_miss(bytes, "byte " + std::to_string(at));
  }
  expect_good();
}

// A torn write leaves old bytes or zeros in a block, or blocks in the place of others.
TEST_F(DiskDamage, TornWrites) {
  ASSERT_EQ(tier_->store(1, payload_of(1, 1, kBytes)), KVC_TIER_OK);
  const Bytes other = read(path(1));
  for (size_t block = 0; block < 3; ++block) {
    Bytes bytes = good_;
    bytes.replace(block * 4096, 4096, 4096, '\0');
    expect_miss(bytes, "zeros in block " + std::to_string(block));
    bytes = good_;
    bytes.replace(block * 4096, 4096, other, block * 4096, 4096);
    expect_miss(bytes, "old block " + std::to_string(block));
    bytes = good_;
    bytes.replace(block * 4096, 4096, good_, (block + 1) % 3 * 4096, 4096);
    expect_miss(bytes, "another block in the place of block " + std::to_string(block));
  }
  expect_good();
}

TEST_F(DiskDamage, OtherLengths) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{4096}, good_.size() - 1,
                             good_.size() + 1, good_.size() + 4096}) {
    Bytes cut = good_;
    cut.resize(bytes);
    expect_miss(cut, std::to_string(bytes) + " bytes");
  }
  expect_good();
}

// The scan of a restart sees lengths only. A damaged file of the right length is found by its load.
TEST_F(DiskDamage, RestartDeletesFilesOfAnotherLength) {
  write(path(1), good_.substr(0, 4096));
  tier_ = std::make_unique<TierDriver>(open_disk(options()));
  EXPECT_FALSE(tier_->has(1));
  EXPECT_FALSE(exists(path(1)));
  EXPECT_EQ(tier_->stats().damaged, 1);
  expect_good();
}

TEST_F(DiskDamage, FileOfAnotherObject) {
  ASSERT_EQ(tier_->store(2, payload_of(2, 0, kBytes)), KVC_TIER_OK);
  expect_miss(read(path(2)), "a whole file of another key");
  expect_good();
}

TEST_F(DiskDamage, FileUnderTheNameOfAnotherSize) {
  Bytes loaded(kBytes + 1, 'x');
  ASSERT_EQ(tier_->remove(1), KVC_TIER_OK);
  write(path(1, kBytes + 1), good_);
  EXPECT_EQ(tier_->load(1, &loaded), KVC_TIER_MISS);
  EXPECT_FALSE(exists(path(1, kBytes + 1)));
}

TEST_F(DiskDamage, ThingsThatAreNoFiles) {
  Bytes loaded(kBytes, 'x');
  const std::string target = folder_.path() + "/target";
  write(target, good_);
  const auto replace = [&](auto make) {
    std::filesystem::remove(path(1));
    make();
    EXPECT_EQ(tier_->load(1, &loaded), KVC_TIER_MISS);
  };
  replace([&] { ASSERT_EQ(symlink(target.c_str(), path(1).c_str()), 0); });
  EXPECT_FALSE(exists(path(1)));
  EXPECT_TRUE(exists(target));
  replace([&] { ASSERT_EQ(mkfifo(path(1).c_str(), 0600), 0); });
  EXPECT_FALSE(exists(path(1)));
  replace([&] { ASSERT_EQ(mkdir(path(1).c_str(), 0700), 0); });
  std::filesystem::remove(path(1));
  expect_good();
}

// Files with names that no object has are kept, whatever they contain.
TEST_F(DiskDamage, UnknownNamesAreLeftAlone) {
  const std::string folder = path(1).substr(0, path(1).rfind('/'));
  const std::string name = path(1).substr(path(1).rfind('/') + 1);
  std::string capitals = name;
  for (char &letter : capitals) letter = static_cast<char>(toupper(letter));
  const std::string names[] = {"notes.txt",        name + "0000000000", name.substr(0, 64),
                               name.substr(0, 65), "0" + name,          capitals};
  for (const std::string &other : names) write(folder + "/" + other, "mine");
  tier_ = std::make_unique<TierDriver>(open_disk(options()));
  EXPECT_EQ(tier_->stats().objects, 1);
  for (const std::string &other : names) EXPECT_TRUE(read(folder + "/" + other) == "mine") << other;
}

// A crash between the rename and the deletion of an object of another size leaves both. The newer one stays.
TEST_F(DiskDamage, TwoFilesOfOneKey) {
  TemporaryFolder elsewhere;
  TierDriver other(open_disk(disk_options(elsewhere)));
  ASSERT_EQ(other.store(1, payload_of(1, 1, 500)), KVC_TIER_OK);
  for (const bool newer : {true, false}) {
    write(path(1), good_);
    const std::string second = path(1, 500);
    write(second, read(elsewhere.path() + "/" + object_name(key_of(1), 500)));
    const auto now = std::filesystem::last_write_time(path(1));
    std::filesystem::last_write_time(second, now + std::chrono::seconds(newer ? 5 : -5));
    tier_ = std::make_unique<TierDriver>(open_disk(options()));
    const size_t bytes = newer ? 500 : kBytes;
    EXPECT_EQ(tier_->lookup(1).bytes, static_cast<int64_t>(bytes));
    EXPECT_EQ(exists(second), newer);
    EXPECT_EQ(exists(path(1)), !newer);
    Bytes loaded(bytes, 'x');
    EXPECT_EQ(tier_->load(1, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(1, newer ? 1 : 0, bytes));
    EXPECT_EQ(tier_->remove(1), KVC_TIER_OK);
  }
}

}  // namespace
}  // namespace kvc

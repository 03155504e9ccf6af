// kvc_tier::removed of the host tier and of the disk tier: it reports the keys of all objects that the tier has lost.
#include <algorithm>
#include <fstream>
#include <functional>
#include <set>

#include "disk_driver.h"
#include "tier/host_tier.h"
#include "tier/removed_keys.h"

namespace kvt {
namespace {

constexpr int64_t kRoom = 10 * 4096;

kvc_tier open_small_host() {
  kvc_tier tier;
  kvc_tier_init(&tier);
  const kvc::Status status = kvc::open_host_tier(kRoom, &tier);
  EXPECT_TRUE(status.ok()) << status.message();
  return tier;
}

// The numbers of the keys that the tier reports. Takes a few in each call.
std::set<uint64_t> take_removed(const kvc_tier &tier) {
  std::set<uint64_t> numbers;
  kvc_tier_key keys[3];
  int64_t count = 0;
  while ((count = tier.removed(tier.self, keys, 3)) > 0) {
    for (int64_t i = 0; i < count; ++i) {
      uint64_t number;
      std::memcpy(&number, keys[i].bytes + 24, 8);
      numbers.insert(number);
    }
  }
  EXPECT_EQ(count, 0);
  return numbers;
}

// Stores, loads and removes at random. After each call, the keys that are no longer found are exactly those reported.
void check_random_calls(TierDriver &tier) {
  std::mt19937 random(3);
  std::set<uint64_t> found;
  for (uint64_t i = 0; i < 8; ++i) tier.store(i, payload_of(i, 0, 10));
  EXPECT_EQ(tier.table().removed(tier.table().self, nullptr, 0), 0);  // begins to record
  for (uint64_t i = 0; i < 30; ++i) {
    if (tier.has(i)) found.insert(i);
  }
  size_t most = 0;
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    const uint64_t number = random() % 30;
    if (random() % 5 == 0) {
      tier.remove(number);
    } else if (random() % 4 == 0) {
      Bytes loaded(10, 'x');
      tier.load(number, &loaded);
    } else {
      tier.store(number, payload_of(number, 1, random() % 3 == 0 ? 9000 : 10));
    }
    std::set<uint64_t> now, gone;
    for (uint64_t n = 0; n < 30; ++n) {
      if (tier.has(n)) now.insert(n);
    }
    std::set_difference(found.begin(), found.end(), now.begin(), now.end(), std::inserter(gone, gone.end()));
    const std::set<uint64_t> reported = take_removed(tier.table());
    // An object that was stored again in the same call may be reported too.
    EXPECT_TRUE(std::includes(reported.begin(), reported.end(), gone.begin(), gone.end())) << i;
    for (const uint64_t n : reported) EXPECT_TRUE(found.contains(n)) << n;
    for (const uint64_t n : reported) EXPECT_TRUE(gone.contains(n) || n == number) << n;
    most = std::max(most, gone.size());
    found = now;
  }
  EXPECT_GT(most, 1u);
}

TEST(RemovedKeys, OfAHostTier) {
  TierDriver tier(open_small_host());
  check_random_calls(tier);
}

TEST(RemovedKeys, OfADiskTier) {
  const TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder, kRoom)));
  check_random_calls(tier);
}

// Another process removes files, and damages one.
TEST(RemovedKeys, OfFilesThatOthersChange) {
  const TemporaryFolder folder;
  kvc::DiskTierOptions options = disk_options(folder);
  options.rescan_ms = 1;
  TierDriver tier(open_disk(options)), other(open_disk(options));
  EXPECT_EQ(tier.table().removed(tier.table().self, nullptr, 0), 0);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 100)), KVC_TIER_OK);
  Bytes loaded(100, 'x');
  ASSERT_EQ(other.load(1, &loaded), KVC_TIER_OK);
  ASSERT_EQ(other.remove(1), KVC_TIER_OK);
  EXPECT_EQ(tier.load(1, &loaded), KVC_TIER_MISS);
  EXPECT_EQ(take_removed(tier.table()), (std::set<uint64_t>{1}));
  ASSERT_EQ(other.load(2, &loaded), KVC_TIER_OK);
  ASSERT_EQ(other.remove(2), KVC_TIER_OK);
  std::set<uint64_t> reported;
  for (int tries = 0; reported.empty() && tries < 10000; ++tries) {
    tier.has(77);  // a lookup that misses starts a scan
    reported = take_removed(tier.table());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(reported, (std::set<uint64_t>{2}));
}

TEST(RemovedKeys, AreForgottenIfThereAreTooMany) {
  constexpr int64_t kMost = kvc::RemovedKeys::kMost;
  kvc::RemovedKeys removed;
  kvc_tier_key keys[8];
  removed.add(key_of(1));
  EXPECT_EQ(removed.take(keys, 8), 0);  // recorded from now on
  EXPECT_EQ(removed.take(keys, 8), 0);
  removed.add(key_of(2));
  removed.add(key_of(3));
  EXPECT_EQ(removed.take(keys, 1), 1);
  EXPECT_EQ(removed.take(keys, 8), 1);
  EXPECT_EQ(removed.take(keys, 8), 0);
  for (int64_t i = 0; i < kMost; ++i) removed.add(key_of(4));
  EXPECT_EQ(removed.take(keys, 8), 8);
  for (int64_t i = 0; i < 9; ++i) removed.add(key_of(5));  // one too many
  EXPECT_EQ(removed.take(keys, 8), -1);
  EXPECT_EQ(removed.take(keys, 8), 0);
  removed.add(key_of(6));
  EXPECT_EQ(removed.take(keys, 8), 1);
  EXPECT_EQ(std::memcmp(keys[0].bytes, key_of(6).bytes, 32), 0);
}

}  // namespace
}  // namespace kvt

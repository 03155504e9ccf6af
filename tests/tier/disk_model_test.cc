// Random calls of a disk tier, compared with a map of the stored objects.
//
//   KVC_TIER_OPERATIONS   number of calls (default 3000); KVC_TIER_SEED   default 1
#include <cstdlib>
#include <map>
#include <memory>

#include "disk_driver.h"

namespace kvc {
namespace {

using namespace kvt;

uint64_t number_from_environment(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}

struct Stored {
  uint64_t version = 0;
  size_t bytes = 0;
  int64_t used = 0;  // number of the call that used it last
};

// An exact model. Calls are made one at a time, so the order of use is the order of the calls.
class Model {
 public:
  explicit Model(int64_t capacity_bytes) : capacity_(capacity_bytes) {}
  static int64_t on_disk(size_t bytes) { return (128 + static_cast<int64_t>(bytes) + 4095) / 4096 * 4096; }
  const Stored *find(uint64_t number) const {
    const auto at = objects_.find(number);
    return at == objects_.end() ? nullptr : &at->second;
  }
  void use(uint64_t number) { objects_[number].used = ++calls_; }
  bool remove(uint64_t number) { return objects_.erase(number) > 0; }
  // The tier makes room before it writes, while the object that will be replaced still counts.
  void store(uint64_t number, uint64_t version, size_t bytes) {
    while (total() + on_disk(bytes) > capacity_) evict();
    objects_[number] = {version, bytes, ++calls_};
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const auto &[number, stored] : objects_) sum += on_disk(stored.bytes);
    return sum;
  }
  size_t size() const { return objects_.size(); }

 private:
  void evict() {
    auto oldest = objects_.begin();
    for (auto at = objects_.begin(); at != objects_.end(); ++at) {
      if (at->second.used < oldest->second.used) oldest = at;
    }
    objects_.erase(oldest);
  }
  const int64_t capacity_;
  int64_t calls_ = 0;
  std::map<uint64_t, Stored> objects_;
};

TEST(DiskModel, RandomCallsAndRestarts) {
  const uint64_t seed = number_from_environment("KVC_TIER_SEED", 1);
  const uint64_t operations = number_from_environment("KVC_TIER_OPERATIONS", 3000);
  SCOPED_TRACE("KVC_TIER_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, 40 * 4096);
  // Each reading of the clock is two seconds later, so that every use is written to its file and survives a restart.
  static int64_t clock_ns;
  clock_ns = 1'700'000'000'000'000'000;
  options.wall_ns = [] { return clock_ns += 2'000'000'000; };
  Model model(options.capacity_bytes);
  auto tier = std::make_unique<TierDriver>(open_disk(options));
  for (uint64_t step = 0; step < operations && !testing::Test::HasFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    const uint64_t number = random() % 60;
    const Stored *stored = model.find(number);
    const uint64_t choice = random() % 100;
    if (choice < 40) {
      const size_t bytes = random() % 4 == 0 ? random() % 40000 : random() % 6000;
      EXPECT_EQ(tier->store(number, payload_of(number, step, bytes)), KVC_TIER_OK);
      model.store(number, step, bytes);
    } else if (choice < 75) {
      Bytes loaded(stored ? stored->bytes : random() % 6000, 'x');
      EXPECT_EQ(tier->load(number, &loaded), stored ? KVC_TIER_OK : KVC_TIER_MISS);
      if (stored) {
        EXPECT_TRUE(loaded == payload_of(number, stored->version, stored->bytes));
        model.use(number);
      }
    } else if (choice < 80) {
      EXPECT_EQ(tier->remove(number), model.remove(number) ? KVC_TIER_OK : KVC_TIER_MISS);
    } else if (choice < 99) {
      const kvc_tier_found found = tier->lookup(number);
      EXPECT_EQ(found.result, stored ? KVC_TIER_HIT : KVC_TIER_MISS);
      EXPECT_EQ(found.bytes, stored ? static_cast<int64_t>(stored->bytes) : 0);
    } else {
      tier.reset();
      tier = std::make_unique<TierDriver>(open_disk(options));
      EXPECT_EQ(tier->lookup(60).result, KVC_TIER_MISS);  // when the folder was searched: stats count what was found
    }
    const kvc_tier_stats stats = tier->stats();
    EXPECT_EQ(stats.stored_bytes, model.total());
    EXPECT_EQ(stats.objects, static_cast<int64_t>(model.size()));
    EXPECT_TRUE(step % 64 != 0 || folder.object_bytes() == model.total());
  }
}

// Jobs of many items on four threads. In any order, a load gives bytes that were stored under its key.
TEST(DiskModel, ParallelJobs) {
  std::mt19937_64 random(7);
  TemporaryFolder folder;
  DiskTierOptions options = disk_options(folder, 60 * 4096);
  TierDriver tier(open_disk(options));
  const kvc_tier &t = tier.table();
  constexpr uint64_t kNumbers = 40;
  constexpr size_t kBytes = 9000;
  for (int round = 0; round < 60 && !testing::Test::HasFailure(); ++round) {
    constexpr int kItems = 64;
    std::vector<Bytes> payloads(kItems);
    std::vector<std::unique_ptr<Parts>> parts;
    std::vector<kvc_tier_item> items;
    std::vector<uint64_t> numbers;
    for (int i = 0; i < kItems; ++i) {
      numbers.push_back(random() % kNumbers);
      payloads[static_cast<size_t>(i)] =
          i < kItems / 2 ? payload_of(numbers.back(), random() % 3, kBytes) : Bytes(kBytes, 'x');
      parts.push_back(std::make_unique<Parts>(key_of(numbers.back()), &payloads[static_cast<size_t>(i)]));
      items.push_back(parts.back()->item());
    }
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(t.store(t.self, 1, kItems / 2, items.data(), &error), KVC_TIER_OK);
    ASSERT_EQ(t.load(t.self, 2, kItems / 2, items.data() + kItems / 2, &error), KVC_TIER_OK);
    for (const kvc_tier_completion &done : tier.wait(kItems)) {
      if (done.job == 1) {
        EXPECT_TRUE(done.result == KVC_TIER_OK || done.result == KVC_TIER_RETRY) << done.result;
        continue;
      }
      const size_t at = static_cast<size_t>(done.index) + kItems / 2;
      if (done.result == KVC_TIER_MISS) continue;
      ASSERT_EQ(done.result, KVC_TIER_OK);
      bool known = false;
      for (uint64_t version = 0; version < 3; ++version)
        known |= payloads[at] == payload_of(numbers[at], version, kBytes);
      EXPECT_TRUE(known);
    }
    EXPECT_LE(tier.stats().stored_bytes, options.capacity_bytes);
  }
  EXPECT_EQ(folder.object_bytes(), tier.stats().stored_bytes);
  EXPECT_GT(tier.stats().loads, 100);
}

// Objects of 64 sets of keys, as of 64 tenants. No lookup and no load gives an object of another set.
TEST(DiskModel, KeySetsDoNotMix) {
  TemporaryFolder folder;
  TierDriver tier(open_disk(disk_options(folder)));
  std::mt19937_64 random(5);
  constexpr uint64_t kSets = 64, kObjects = 16;
  // Each set has the same objects. Odd sets store only odd objects, and even sets only even ones.
  const auto stored = [](uint64_t set, uint64_t object) { return (set ^ object) % 2 == 0; };
  const auto bytes_of = [](uint64_t set) { return 64 + set; };
  for (uint64_t set = 0; set < kSets; ++set) {
    for (uint64_t object = 0; object < kObjects; ++object) {
      const uint64_t number = set * 1000 + object;
      if (!stored(set, object)) continue;
      ASSERT_EQ(tier.store(number, payload_of(number, 0, bytes_of(set))), KVC_TIER_OK);
    }
  }
  int64_t leaks = 0, hits = 0;
  for (int64_t i = 0; i < 100000; i += 100) {
    kvc_tier_key keys[100];
    kvc_tier_found found[100];
    uint64_t numbers[100];
    for (int j = 0; j < 100; ++j) {
      numbers[j] = random() % kSets * 1000 + random() % kObjects;
      keys[j] = key_of(numbers[j]);
    }
    tier.table().lookup(tier.table().self, 100, keys, found);
    for (int j = 0; j < 100; ++j) {
      const uint64_t set = numbers[j] / 1000;
      const bool hit = found[j].result == KVC_TIER_HIT;
      leaks += hit != stored(set, numbers[j] % 1000);
      leaks += hit && found[j].bytes != static_cast<int64_t>(bytes_of(set));
      hits += hit;
    }
    Bytes loaded(bytes_of(numbers[0] / 1000), 'x');
    const int32_t result = tier.load(numbers[0], &loaded);
    leaks += result == KVC_TIER_OK && loaded != payload_of(numbers[0], 0, loaded.size());
    leaks += (result == KVC_TIER_OK) != stored(numbers[0] / 1000, numbers[0] % 1000);
  }
  EXPECT_EQ(leaks, 0);
  EXPECT_GT(hits, 40000);
}

}  // namespace
}  // namespace kvc

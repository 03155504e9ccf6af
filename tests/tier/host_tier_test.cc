// The host tier: what it promises, a naive model of it, and threads.
#include "tier/host_tier.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "failing_new.h"
#include "tier/host_store.h"
#include "tier_driver.h"

namespace kvt {
namespace {

constexpr int64_t kBlock = 4096;

kvc_tier open_host(int64_t capacity_bytes) {
  kvc_tier tier;
  kvc_tier_init(&tier);
  const kvc::Status status = kvc::open_host_tier(capacity_bytes, &tier);
  EXPECT_TRUE(status.ok()) << status.message();
  return tier;
}

TEST(HostTier, StoresLoadsAndRemoves) {
  TierDriver tier(open_host(int64_t{1} << 30));
  for (const size_t bytes : {0, 1, 4096, 4097, 100000}) {
    EXPECT_FALSE(tier.has(bytes));
    ASSERT_EQ(tier.store(bytes, payload_of(bytes, 0, bytes + 1)), KVC_TIER_OK);
    ASSERT_EQ(tier.store(bytes, payload_of(bytes, 1, bytes)), KVC_TIER_OK);  // replaces it
    EXPECT_EQ(tier.lookup(bytes).bytes, static_cast<int64_t>(bytes));
    Bytes loaded(bytes, 'x'), other(bytes + 1, 'x');
    EXPECT_EQ(tier.load(bytes, &loaded), KVC_TIER_OK);
    EXPECT_TRUE(loaded == payload_of(bytes, 1, bytes));
    EXPECT_EQ(tier.load(bytes, &other), KVC_TIER_MISS);
  }
  EXPECT_EQ(tier.stats().objects, 5);
  EXPECT_EQ(tier.stats().stored_bytes, (0 + 1 + 1 + 2 + 25) * kBlock);
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_EQ(tier.remove(1), KVC_TIER_MISS);
  EXPECT_FALSE(tier.has(1));
  const kvc_tier_stats stats = tier.stats();
  EXPECT_EQ(stats.objects, 4);
  EXPECT_EQ(stats.stores, 10);
  EXPECT_EQ(stats.loads, 5);
  EXPECT_EQ(stats.removes, 1);
  EXPECT_EQ(stats.misses, 6);
  EXPECT_EQ(stats.evictions, 0);
  EXPECT_EQ(stats.open_items, 0);
  EXPECT_EQ(stats.capacity_bytes, int64_t{1} << 30);
  EXPECT_EQ(stats.loaded_bytes, 0 + 1 + 4096 + 4097 + 100000);
  EXPECT_GT(stats.load_bytes_per_second, 0);
}

TEST(HostTier, KeysWithOneHashAreApart) {
  TierDriver tier(open_host(int64_t{1} << 30));
  check_colliding_keys(tier);
}

// So a device copies such an object in one piece.
TEST(HostTier, ObjectsOfOneSizeLieInOneRun) {
  kvc::HostStore store;
  ASSERT_TRUE(store.open(20 * kBlock, nullptr).ok());
  std::mt19937 random(1);
  for (uint64_t step = 0; step < 200; ++step) {
    kvc::HostStore::Place place;
    const kvc_tier_key key = key_of(step);
    ASSERT_EQ(store.begin_store(key, 3 * kBlock - 1, false, &place), KVC_TIER_OK);
    ASSERT_EQ(place.memory().runs.size(), 1u) << step;
    EXPECT_EQ(place.memory().bytes(), 3 * kBlock - 1);
    store.end_store(&place, random() % 4 != 0);
    kvc_tier_item item = {};
    item.key = key_of(random() % (step + 1));
    (void)store.perform(kvc::TierWork::kRemove, item);
  }
}

TEST(HostTier, ObjectsInSeveralRunsAreWhole) {
  kvc::HostStore store;
  ASSERT_TRUE(store.open(64 * kBlock, nullptr).ok());
  std::mt19937 random(2);
  std::map<uint64_t, Bytes> stored;
  size_t most_runs = 0;
  for (uint64_t step = 0; step < 500; ++step) {
    const Bytes bytes = payload_of(step, 0, random() % (9 * kBlock));
    const auto size = static_cast<int64_t>(bytes.size());
    kvc::HostStore::Place place;
    ASSERT_EQ(store.begin_store(key_of(step), size, false, &place), KVC_TIER_OK);
    most_runs = std::max(most_runs, place.memory().runs.size());
    const int64_t cut = size > 0 ? static_cast<int64_t>(random() % bytes.size()) : 0;
    place.memory().write(0, bytes.data(), cut);
    place.memory().write(cut, bytes.data() + cut, size - cut);
    store.end_store(&place, true);
    stored[step] = bytes;
    const uint64_t other = random() % (step + 1);
    const Bytes &expected = stored[other];
    kvc::HostStore::Place read;
    if (store.begin_load(key_of(other), static_cast<int64_t>(expected.size()), &read) != KVC_TIER_OK) continue;
    Bytes found(expected.size(), 'x');
    read.memory().read(0, found.data(), static_cast<int64_t>(found.size()));
    EXPECT_TRUE(found == expected);
    kvc_tier_item item = {};
    item.key = key_of(other);
    EXPECT_EQ(store.perform(kvc::TierWork::kRemove, item), KVC_TIER_OK);  // its blocks stay until the load ends
    store.end_load(&read, true);
  }
  EXPECT_GT(most_runs, 2u);
  kvc_tier_stats stats;
  kvc_tier_stats_init(&stats);
  store.fill(&stats);
  EXPECT_EQ(stats.stores, 500);
  EXPECT_GT(stats.loads, 50);
  EXPECT_GT(stats.evictions, 50);
}

TEST(HostTier, AnObjectThatCannotFitIsRefused) {
  const kvc_tier table = open_host(3 * kBlock + 1);
  EXPECT_EQ(table.max_object_bytes, 3 * kBlock);
  TierDriver tier(table);
  EXPECT_EQ(tier.store(1, payload_of(1, 0, 3 * kBlock)), KVC_TIER_OK);
  Bytes large(3 * kBlock + 1, 'x');
  Parts parts(key_of(2), &large);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(table.store(table.self, 7, 1, &parts.item(), &error), KVC_TIER_FAILED);
  EXPECT_STREQ(error.message, "store: item 0: 12289 bytes; the tier takes 12288");
  EXPECT_TRUE(tier.has(1));
}

TEST(HostTier, KeptObjectsAreNotEvicted) {
  TierDriver tier(open_host(4 * kBlock));
  const kvc_tier &t = tier.table();
  ASSERT_EQ(t.flags, uint32_t{KVC_TIER_KEEPS});
  Bytes data = payload_of(1, 0, 2 * kBlock);
  Parts parts(key_of(1), &data);
  kvc_tier_item item = parts.item();
  item.flags = KVC_TIER_ITEM_KEEP;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(t.store(t.self, 99, 1, &item, &error), KVC_TIER_OK);
  EXPECT_EQ(tier.wait(1)[0].result, KVC_TIER_OK);
  for (uint64_t i = 2; i < 6; ++i) ASSERT_EQ(tier.store(i, payload_of(i, 0, 2 * kBlock)), KVC_TIER_OK);
  EXPECT_TRUE(tier.has(1));
  EXPECT_TRUE(tier.has(5));
  const int64_t evictions = tier.stats().evictions;
  EXPECT_EQ(tier.store(6, payload_of(6, 0, 3 * kBlock)), KVC_TIER_RETRY);  // there is no room beside it
  EXPECT_TRUE(tier.has(1));
  EXPECT_TRUE(tier.has(5));  // its blocks would not have been enough
  EXPECT_EQ(tier.stats().evictions, evictions);
  EXPECT_EQ(tier.remove(1), KVC_TIER_OK);
  EXPECT_EQ(tier.store(6, payload_of(6, 0, 3 * kBlock)), KVC_TIER_OK);
  item.flags = 2;
  EXPECT_EQ(t.store(t.self, 99, 1, &item, &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_UNSUPPORTED);
}

// A store that replaces an object and runs out of memory leaves the old object.
TEST(HostTier, AStoreWithoutMemoryKeepsTheOldObject) {
  int failures = 0;
  for (int64_t n = 1, failed = 1; failed != 0; ++n) {
    TierDriver tier(open_host(8 * kBlock));
    ASSERT_EQ(tier.store(1, payload_of(1, 0, kBlock)), KVC_TIER_OK);
    Bytes data = payload_of(1, 1, 2 * kBlock);
    Parts parts(key_of(1), &data);
    kvc_error error = KVC_ERROR_INIT;
    fail_allocation(n);
    ASSERT_EQ(tier.table().store(tier.table().self, 9, 1, &parts.item(), &error), KVC_TIER_OK);
    failed = fail_allocation(0);
    const bool stored = tier.wait(1)[0].result == KVC_TIER_OK;
    EXPECT_EQ(stored, failed == 0);
    failures += !stored;
    const size_t bytes = stored ? data.size() : kBlock;
    Bytes loaded(bytes, 'x');
    ASSERT_EQ(tier.load(1, &loaded), KVC_TIER_OK) << "allocation " << n;
    EXPECT_TRUE(loaded == payload_of(1, stored, bytes));
    EXPECT_EQ(tier.stats().stored_bytes, static_cast<int64_t>(bytes));
  }
  EXPECT_GE(failures, 1);
}

TEST(HostTier, CompletionsThatAreNotPolledFillTheQueue) {
  TierDriver tier(open_host(kBlock));
  const kvc_tier &t = tier.table();
  std::vector<kvc_tier_item> items(1025, kvc_tier_item{key_of(1), nullptr, 0, 0, 0});
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(t.store(t.self, 1, 1025, items.data(), &error), KVC_TIER_FAILED);
  EXPECT_EQ(error.code, KVC_ERROR_BATCH_TOO_LARGE);
  EXPECT_EQ(t.store(t.self, 1, 1000, items.data(), &error), KVC_TIER_OK);
  EXPECT_EQ(t.store(t.self, 2, 25, items.data(), &error), KVC_TIER_RETRY);
  EXPECT_EQ(t.load(t.self, 3, 24, items.data(), &error), KVC_TIER_OK);
  t.cancel(t.self, 3);  // every item has begun
  EXPECT_EQ(tier.wait(1024).back().result, KVC_TIER_OK);
  EXPECT_EQ(tier.stats().loads, 24);
}

// Objects by their last use, as a list.
struct Model {
  struct Object {
    uint64_t number, version;
    size_t bytes;
  };
  int64_t capacity_blocks;
  std::list<Object> objects;
  int64_t evictions = 0;

  static int64_t blocks(size_t bytes) { return (static_cast<int64_t>(bytes) + kBlock - 1) / kBlock; }
  int64_t used() const {
    int64_t sum = 0;
    for (const Object &object : objects) sum += blocks(object.bytes);
    return sum;
  }
  std::list<Object>::iterator find(uint64_t number) {
    return std::find_if(objects.begin(), objects.end(), [=](const Object &o) { return o.number == number; });
  }
  // A replaced object takes its blocks until the new one is complete.
  void store(uint64_t number, uint64_t version, size_t bytes) {
    while (used() + blocks(bytes) > capacity_blocks) objects.pop_front(), ++evictions;
    if (const auto old = find(number); old != objects.end()) objects.erase(old);
    objects.push_back({number, version, bytes});
  }
};

TEST(HostTier, ActsAsANaiveModel) {
  std::mt19937 random(1);
  TierDriver tier(open_host(24 * kBlock));
  Model model{24, {}, 0};
  for (uint64_t step = 0; step < 20000; ++step) {
    const uint64_t number = random() % 24;
    const auto known = model.find(number);
    switch (random() % 4) {
      case 0: {
        const size_t bytes = random() % (5 * kBlock);
        ASSERT_EQ(tier.store(number, payload_of(number, step, bytes)), KVC_TIER_OK);
        model.store(number, step, bytes);
        break;
      }
      case 1: {
        if (known == model.objects.end()) {
          Bytes none(8, 'x');
          ASSERT_EQ(tier.load(number, &none), KVC_TIER_MISS);
          break;
        }
        Bytes loaded(known->bytes, 'x');
        ASSERT_EQ(tier.load(number, &loaded), KVC_TIER_OK);
        ASSERT_TRUE(loaded == payload_of(number, known->version, known->bytes)) << step;
        model.objects.splice(model.objects.end(), model.objects, known);
        break;
      }
      case 2:
        ASSERT_EQ(tier.has(number), known != model.objects.end());
        break;
      default:
        if (random() % 4 != 0) break;
        ASSERT_EQ(tier.remove(number), known == model.objects.end() ? KVC_TIER_MISS : KVC_TIER_OK);
        if (known != model.objects.end()) model.objects.erase(known);
    }
    const kvc_tier_stats stats = tier.stats();
    ASSERT_EQ(stats.objects, static_cast<int64_t>(model.objects.size())) << step;
    ASSERT_EQ(stats.stored_bytes, model.used() * kBlock);
    ASSERT_EQ(stats.evictions, model.evictions);
  }
  EXPECT_GT(model.evictions, 1000);
}

// Completions that some thread has polled, for the thread that waits for them.
class Completions {
 public:
  int32_t wait(const kvc_tier &tier, uint64_t job) {
    for (;;) {
      const std::lock_guard lock(mutex_);
      kvc_tier_completion done[8];
      const int64_t count = tier.poll(tier.self, done, 8);
      for (int64_t i = 0; i < count; ++i) results_[done[i].job] = done[i].result;
      const auto found = results_.find(job);
      if (found == results_.end()) continue;
      const int32_t result = found->second;
      results_.erase(found);
      return result;
    }
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, int32_t> results_;
};

// Every object has the bytes of some store under its key, also while it is replaced, evicted and removed.
TEST(HostTier, ThreadsNeverSeeOtherBytes) {
  const kvc_tier table = open_host(64 * kBlock);
  Completions completions;
  std::atomic<int64_t> loaded = 0;
  std::atomic<uint64_t> last_job = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int step = 0; step < 4000; ++step) {
        const uint64_t number = random() % 12;
        const size_t bytes = 3 * kBlock + number * 700;
        Bytes data = payload_of(number, random() % 3, bytes);
        Parts parts(key_of(number), &data);
        kvc_error error = KVC_ERROR_INIT;
        const bool load = random() % 2 == 0;
        if (load) std::fill(data.begin(), data.end(), 'x');
        const uint64_t job = ++last_job;
        const auto call = random() % 16 == 0 ? table.remove : load ? table.load : table.store;
        EXPECT_EQ(call(table.self, job, 1, &parts.item(), &error), KVC_TIER_OK);
        const int32_t result = completions.wait(table, job);
        if (call != table.load || result != KVC_TIER_OK) continue;
        bool known = false;
        for (uint64_t version = 0; version < 3; ++version) known = known || data == payload_of(number, version, bytes);
        EXPECT_TRUE(known) << number;
        ++loaded;
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  EXPECT_GT(loaded, 1000);
  table.close(table.self);
}

}  // namespace
}  // namespace kvt

#include "context/worker_slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace kvc {
namespace {

TEST(WorkerSlots, HandsOutEachSlotOnce) {
  for (int count : {1, 8, 63, 64, 65, 1031}) {
    WorkerSlots slots(count);
    std::set<int> seen;
    for (int i = 0; i < count; i++) seen.insert(slots.try_claim());
    EXPECT_EQ(seen.size(), static_cast<size_t>(count));
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), count - 1);
    EXPECT_EQ(slots.try_claim(), -1);
    slots.release(count / 2);
    EXPECT_EQ(slots.try_claim(), count / 2);
  }
}

TEST(WorkerSlots, ResetFreesEverySlot) {
  WorkerSlots slots(70);
  while (slots.try_claim() >= 0) {
  }
  slots.reset();
  int count = 0;
  while (slots.try_claim() >= 0) count++;
  EXPECT_EQ(count, 70);
}

TEST(WorkerSlots, WaitersGetSlotsAndNeverShareOne) {
  WorkerSlots slots(3);
  std::vector<std::atomic<int>> holders(3);
  std::atomic<int> shared{0}, claims{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; i++) {
        const int slot = slots.claim();
        if (holders[slot].fetch_add(1) != 0) shared++;
        claims++;
        if (i % 50 == 0) std::this_thread::yield();
        holders[slot].fetch_sub(1);
        slots.release(slot);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
  EXPECT_EQ(claims, 12 * 500);
}

TEST(WorkerSlots, RacingClaimsNeverShareOne) {
  WorkerSlots slots(8);
  std::vector<std::atomic<int>> holders(8);
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200'000; i++) {
        const int slot = slots.try_claim();
        if (slot < 0 || holders[slot].fetch_add(1) != 0) {
          shared++;
          return;
        }
        holders[slot].fetch_sub(1);
        slots.release(slot);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
}

}  // namespace
}  // namespace kvc

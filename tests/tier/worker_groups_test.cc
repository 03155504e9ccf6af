// TierWorker loads the pages of a load group after group, if a sequence waits for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "tier/tier_worker.h"

namespace kvc {
namespace {

// A tier whose loads all succeed when they are allowed to complete.
struct Tier {
  std::mutex mutex;
  std::deque<kvc_tier_completion> waiting;
  int64_t allowed = 0;

  kvc_tier table() {
    kvc_tier t;
    kvc_tier_init(&t);
    t.self = this;
    t.lookup = [](void *, int64_t n, const kvc_tier_key *, kvc_tier_found *found) {
      for (int64_t i = 0; i < n; ++i) found[i] = {KVC_TIER_MISS, 0, 0};
    };
    t.load = [](void *self, uint64_t job, int64_t n, const kvc_tier_item *, kvc_error *) -> int32_t {
      Tier &tier = *static_cast<Tier *>(self);
      std::lock_guard lock(tier.mutex);
      for (int64_t i = 0; i < n; ++i) tier.waiting.push_back({job, i, KVC_TIER_OK, 0});
      return KVC_TIER_OK;
    };
    t.store = t.remove = t.load;
    t.poll = [](void *self, kvc_tier_completion *done, int64_t capacity) {
      Tier &tier = *static_cast<Tier *>(self);
      std::lock_guard lock(tier.mutex);
      int64_t count = 0;
      for (; count < capacity && tier.allowed > 0 && !tier.waiting.empty(); ++count, --tier.allowed) {
        done[count] = tier.waiting.front();
        tier.waiting.pop_front();
      }
      return count;
    };
    t.descriptor = [](void *) { return int32_t{-1}; };
    t.cancel = [](void *, uint64_t) {};
    t.stats = [](void *, kvc_tier_stats *) {};
    t.close = [](void *) {};
    return t;
  }
  void allow(int64_t count) {
    std::lock_guard lock(mutex);
    allowed = count;
  }
};

using Page = std::pair<int32_t, int64_t>;  // group, block

// Records the pages that the worker writes.
struct Pools final : TierWorker::Owner {
  std::vector<Page> written;
  Page failing = {-1, -1};
  std::shared_ptr<LoadProgress> progress;
  bool ready_too_early = false;

  int64_t object_bytes(const TierPage &) const override { return 100; }
  bool read_page(const TierPage &, const std::atomic<bool> &, const ObjectMemory &) override { return false; }
  Written write_page(const TierPage &page, const ObjectMemory &) override {
    ready_too_early = ready_too_early || progress->wait(progress->first_layer(page.group), false, nullptr).ok();
    if (failing == Page{page.group, page.block}) return Written::kOtherObject;
    written.emplace_back(page.group, page.block);
    return Written::kYes;
  }
  void changed(int32_t, const TierPage &, bool) override {}
  void in_child() noexcept override {}
};

// A load of the same blocks for three groups. Layers 0 to 4 need the groups 2, 0, 2, 1, 0.
struct Loading {
  static constexpr int32_t kGroups = 3;
  Tier tier;
  Pools pools;
  TierWorker worker{&pools};
  uint64_t load = 0;

  explicit Loading(int64_t blocks) {
    EXPECT_TRUE(worker.add({tier.table(), TierWorker::Stores::kNothing, 0, nullptr}).ok());
    pools.progress = std::make_shared<LoadProgress>(1, std::vector<int32_t>{2, 0, 2, 1, 0},
                                                    std::vector<int64_t>(kGroups, blocks), worker.in_child());
    std::vector<TierWorker::LoadPage> pages;
    for (int64_t b = 0; b < blocks; ++b) {
      for (int32_t g = 0; g < kGroups; ++g) {
        TierWorker::LoadPage page;
        page.page.group = g;
        page.page.block = b;
        page.found = {0, false, 100};
        pages.push_back(page);
      }
    }
    EXPECT_TRUE(worker.load(std::move(pages), &load, pools.progress).ok());
  }
  TierWorker::Loaded finish() {
    tier.allow(1'000'000);
    for (;;) {
      TierWorker::Loaded loaded = worker.poll_load(load);
      if (loaded.done) return loaded;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

std::vector<Page> in_order(std::initializer_list<int32_t> groups, int64_t blocks) {
  std::vector<Page> pages;
  for (const int32_t group : groups) {
    for (int64_t b = 0; b < blocks; ++b) pages.emplace_back(group, b);
  }
  return pages;
}

TEST(WorkerGroups, TheGroupsOfEarlyLayersComeFirst) {
  Loading l(30);
  l.worker.load_by_group(l.load, 0);
  l.worker.load_by_group(l.load, 0);
  EXPECT_EQ(l.finish().first_failed, INT64_MAX);
  EXPECT_TRUE(l.pools.progress->all_ready());
  EXPECT_FALSE(l.pools.ready_too_early);
  // Up to 16 pages were submitted before, in the order of the blocks.
  std::vector<Page> late(l.pools.written.begin() + TierWorker::kMaxOpenItems, l.pools.written.end());
  std::vector<Page> expected;
  for (const Page &page : in_order({2, 0, 1}, 30)) {
    if (std::find(late.begin(), late.end(), page) != late.end()) expected.push_back(page);
  }
  EXPECT_EQ(late, expected);
  EXPECT_EQ(late.size(), 90u - TierWorker::kMaxOpenItems);
  std::sort(l.pools.written.begin(), l.pools.written.end());
  EXPECT_EQ(l.pools.written, in_order({0, 1, 2}, 30));
}

TEST(WorkerGroups, OtherLoadsKeepTheOrderOfTheBlocks) {
  Loading l(30);
  EXPECT_EQ(l.finish().first_failed, INT64_MAX);
  EXPECT_TRUE(std::is_sorted(l.pools.written.begin(), l.pools.written.end(),
                             [](const Page &a, const Page &b) { return a.second < b.second; }));
}

// After a page that fails, the earlier blocks of all groups are loaded, and no later block is submitted.
TEST(WorkerGroups, AFailureEndsTheLaterBlocks) {
  for (const int32_t group : {2, 0, 1}) {
    Loading l(60);
    l.pools.failing = {group, 40};
    l.worker.load_by_group(l.load, 0);
    EXPECT_EQ(l.finish().first_failed, 40);
    EXPECT_EQ(l.pools.progress->count().ready_layers, group == 2 ? 0 : group == 0 ? 1 : 3);
    EXPECT_EQ(l.pools.progress->wait(3, true, nullptr).code(), KVC_ERROR_IO);
    std::vector<int64_t> seen(Loading::kGroups), after(Loading::kGroups);
    for (const Page &page : l.pools.written) ++(page.second < 40 ? seen : after)[static_cast<size_t>(page.first)];
    EXPECT_EQ(seen, std::vector<int64_t>(Loading::kGroups, 40));
    EXPECT_EQ(after[1], group == 1 ? after[1] : 0);  // the group of the last layer
    EXPECT_LE(after[static_cast<size_t>(group)], TierWorker::kMaxOpenItems);
    EXPECT_EQ(l.worker.counts().loading_pages, 0);
    EXPECT_EQ(l.worker.counts().failed_loads, 1);
  }
}

TEST(WorkerGroups, LateLoadsAreCancelled) {
  Loading l(30);
  l.worker.load_by_group(l.load, 5'000'000);
  EXPECT_EQ(l.pools.progress->wait(0, true, nullptr).code(), KVC_ERROR_CANCELLED);
  EXPECT_LT(l.finish().first_failed, 30);
}

TEST(WorkerGroups, TheWorkerEndsMeanwhile) {
  Loading l(30);
  l.tier.allow(7);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  l.worker.cancel_load(l.load);
  l.tier.allow(1'000'000);
}

}  // namespace
}  // namespace kvc

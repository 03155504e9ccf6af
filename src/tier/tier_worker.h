// TierWorker: moves the pages of a cache to and from its tiers, on a thread of its own.
//
// A store is queued. If its page is released before the page is copied, the store is dropped. A load has a list of
// pages, and the caller polls until it is done. The thread starts with the first work.
// A tier that must search for an object answers PENDING at first. Stores of such pages wait in the queue, and a search
// says when no key is PENDING any more.
// Pages of suspended sequences have stores that are polled for as loads are. Their objects are removed in the
// background.
//
// Thread safety: any thread. Lock order: a cache's lock is taken before this one. So the thread calls the owner without
// holding the worker's lock. Ownership: owns the tiers and all buffers. The owner outlives the worker. Invariants
//   1. No other code touches the pages of a load or of a polled store until poll_load has said that it is done.
//   2. At most kMaxOpenItems items are submitted to the tiers, so memory is bounded by their objects.
//   3. A queued page is in Work::queue, and in Work::queued with the same number.
//   4. In a child of fork() the thread does not exist. There lookups find nothing, loads fail, and Work is not touched,
//      because the thread may have been changing it during fork().
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "context/fork_watch.h"
#include "keys/page_key.h"
#include "kvcache_tier.h"
#include "tier/tier_items.h"

namespace kvc {

// A page of tokens of one group, or the states after its last token, as tiers name it.
struct TierPage {
  int32_t group = 0;
  int32_t page = 0;       // in the pools of the group
  int64_t block = 0;      // its first token is block * page_size
  kvc_tier_key key = {};  // of its object
  PageKey page_key = {}, parent_key = {};
  std::shared_ptr<const std::vector<int32_t>> tokens;  // of the whole prefix; null = of a suspended sequence
};

class TierWorker {
 public:
  // The cache, as the worker's thread sees it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Makes the object of a page. False: `valid` was false under the owner's lock, or memory is short.
    virtual bool read_page(const TierPage& page, const std::atomic<bool>& valid, std::vector<uint8_t>* object) = 0;
    // Checks that an object is the one of this page, and writes its contents to the page. False: it is another object.
    virtual bool write_page(const TierPage& page, std::span<const uint8_t> object) = 0;
    // Runs in a child of fork(), before fork() returns. The worker's thread may have held the owner's lock: it is free
    // now.
    virtual void in_child() noexcept = 0;
  };

  // Which published pages a tier stores.
  enum class Stores : uint8_t { kPublished, kReused, kNothing };
  struct Tier {
    kvc_tier table = {};
    Stores stores = Stores::kPublished;
    int64_t min_tokens = 0;  // a publish of fewer tokens is not stored
  };
  // Where a page was found.
  struct Found {
    int32_t tier = -1;     // -1 = in none
    bool pending = false;  // no tier has it so far, and one still searches
    int64_t bytes = 0;
  };
  struct LoadPage {
    TierPage page;
    Found found;
  };
  struct Counts {
    int64_t queued = 0;         // pages that wait for their store, or are being stored
    int64_t stored_pages = 0;   // stores that succeeded
    int64_t dropped_pages = 0;  // released before they were copied, or too many for the queue
    int64_t failed_stores = 0;
    int64_t loading_pages = 0;  // of loads that run
    int64_t loaded_pages = 0;
    int64_t failed_loads = 0;  // pages that a tier no longer had, or whose object was another
  };

  static constexpr int32_t kMaxTiers = 8;
  static constexpr int64_t kMaxQueued = 1 << 16;
  static constexpr int64_t kMaxOpenItems = 16;
  static constexpr size_t kMaxSearched = 64;           // pages at the front of the queue that are looked up
  static constexpr int64_t kMaxKnown = 1024;           // keys that a search looks up under the lock
  static constexpr int64_t kSearchNs = 1'000'000'000;  // the longest search

  explicit TierWorker(Owner* owner);
  // Cancels items that have not begun, waits for all others, and closes the tiers.
  ~TierWorker();
  TierWorker(const TierWorker&) = delete;
  TierWorker& operator=(const TierWorker&) = delete;

  // Takes over an open tier.
  Status add(const Tier& tier);
  int32_t num_tiers() const noexcept { return num_tiers_.load(std::memory_order_acquire); }
  const Tier& tier(int32_t index) const noexcept { return tiers_[index]; }

  // Finds the first tier that has each key.
  void lookup(std::span<const kvc_tier_key> keys, std::span<Found> found);
  // The measured time of a load of so many bytes from a tier; 0 = not measured yet.
  int64_t load_ns(int32_t tier, int64_t bytes) const;

  // Queues a page for a tier, unless it is queued already.
  void store(int32_t tier, TierPage page);
  // Drops the queued stores of a page, because it was released.
  void forget(int32_t group, int32_t page);

  // Starts a load, and returns its number.
  Status load(std::vector<LoadPage> pages, uint64_t* load);
  // Starts to store pages, each in the first tier that takes it, and returns a number as load does.
  Status store_all(std::vector<LoadPage> pages, uint64_t* load);
  // Removes objects in the background. Ignores pages that are in no tier.
  void remove(std::vector<LoadPage> pages);
  // Whether some tier may get the pages of suspended sequences.
  bool can_store() const noexcept { return next_tier(-1) >= 0; }
  // Starts a load without pages. It is done when no tier searches for any of the keys, or after kSearchNs.
  Status search(std::vector<kvc_tier_key> keys, uint64_t* load);
  struct Loaded {
    bool known = false;
    bool done = false;
    int64_t first_failed = INT64_MAX;  // the first block that could not be loaded or stored
    std::vector<LoadPage> pages;       // result of store_all: the pages, with the tiers that have their objects
  };
  // After this has returned `done`, the number of the load is not valid any more.
  Loaded poll_load(uint64_t load);
  void cancel_load(uint64_t load);
  // Readable while a load is done and was not polled; -1 before the first tier.
  int descriptor() const noexcept { return done_event_; }

  Counts counts();

 private:
  struct Load {
    TierWork work = TierWork::kLoad;
    std::vector<LoadPage> pages;
    size_t next = 0;   // first page that was not submitted
    int64_t open = 0;  // pages that were submitted
    bool cancelled = false;
    int64_t first_failed = INT64_MAX;
    std::vector<kvc_tier_key> searched;  // keys that may be PENDING
    int64_t search_until_ns = 0;
    bool done() const noexcept { return open == 0 && (cancelled || (next == pages.size() && searched.empty())); }
  };
  // An item of a tier, with its memory, which is used again.
  struct Item {
    enum class State : uint8_t { kFree, kRefused, kOpen };  // kRefused: the tier was full of work
    State state = State::kFree;
    int32_t tier = 0;
    uint64_t job = 0;
    uint64_t load = 0;  // 0 = a store that was queued
    TierWork work = TierWork::kStore;
    size_t index = 0;  // in the pages of the load
    TierPage page;
    std::vector<uint8_t> object;
    kvc_tier_buffer buffer = {};
    kvc_tier_item item = {};
  };
  struct Queued {
    TierPage page;
    int32_t tier = 0;
    uint64_t number = 0;
  };

  // What the public methods and the thread share.
  struct Work {
    std::deque<Queued> queue;
    std::unordered_map<uint64_t, uint64_t> queued;  // place to number
    uint64_t last_number = 0;
    std::map<uint64_t, Load> loads;
    uint64_t last_load = 0;
    uint64_t reading = 0;  // place of the page that the owner reads; 0 = none
    Counts counts;
    bool stopping = false;
  };

  static void* thread_main(void* self);
  static void child_of_fork(void* self) noexcept;
  Status start_thread() KVC_REQUIRES(mutex_);
  void run();
  bool take_completions();
  bool submit_refused();
  bool search();
  bool start_page(Item& item);
  bool start_store(Item& item);
  void submit(Item& item);
  void finish(Item& item, int32_t result);
  Item* free_item() noexcept;
  void end_page(const Item& item, bool ok);
  // The first tier after `tier` that stores objects; -1 = none.
  int32_t next_tier(int32_t tier) const noexcept;
  bool is_pending(const kvc_tier_key& key) const;
  Status add_load(Load load, uint64_t* id);
  bool may_stop();
  void wait_for_work();
  void wake() noexcept;
  static uint64_t place_of(int32_t tier, int32_t group, int32_t page) noexcept {
    return (uint64_t{1} << 63) | uint64_t(uint32_t(group)) << 40 | uint64_t(uint32_t(tier)) << 32 | uint32_t(page);
  }

  Owner& owner_;
  Tier tiers_[kMaxTiers];  // [num_tiers_]; an entry does not change
  std::atomic<int32_t> num_tiers_ = 0;
  int work_event_ = -1, done_event_ = -1;
  std::atomic<bool> in_child_ = false;  // this process is a child of fork()
  std::atomic<bool> reading_valid_ = false;

  Mutex mutex_;
  pthread_t thread_ = {};
  bool started_ KVC_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Work> work_ KVC_GUARDED_BY(mutex_) = std::make_unique<Work>();

  std::unique_ptr<Item[]> items_ = std::make_unique<Item[]>(kMaxOpenItems);  // of the thread alone
  uint64_t last_job_ = 0;                                                    // likewise
  bool searching_ = false;                                                   // likewise: a tier still searches

  const ForkWatch fork_watch_;
};

}  // namespace kvc

// TierWorker: stores pages of a cache in its tiers, and loads them from there, on its own thread.
//
// A store is queued. If its page is released before it was copied, the store is dropped. A load has a list of pages,
// and the caller polls until the load is done. The thread starts with the first work.
// A tier that must search for an object answers PENDING at first. Stores of pages with such keys wait in the queue. A
// `search` waits until no key of a list is PENDING.
// Pages of suspended sequences are stored by store_all, which the caller polls like a load. Their objects are removed
// in the background.
// If a sequence waits for a load (load_by_group), the groups are loaded one after another, in the order of their first
// layers. So the layers of the first groups are ready early.
//
// Thread safety: any thread. Lock order: the cache's lock is taken before the worker's lock. So the thread does not
// hold the worker's lock when it calls the owner. Ownership: owns the tiers and all buffers. The owner must outlive the
// worker. Invariants
//   1. No other code uses the pages of a load or of store_all before poll_load has returned `done`. There is one
//      exception: if LoadProgress says that a layer is ready, other code may read the pages of its group.
//   2. At most kMaxOpenItems items are submitted at once, so the buffers take no more memory than this number of
//      objects.
//   3. A queued page is in Work::queue, and in Work::queued with the same number.
//   4. In a child of fork(), the thread does not exist. Lookups there find nothing, and loads fail. Work is not used
//      there, because the thread may have been changing it during fork().
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "keys/page_key.h"
#include "kvcache_tier.h"
#include "system/fork_watch.h"
#include "tier/host_store.h"
#include "tier/load_progress.h"
#include "tier/object_memory.h"
#include "tier/tier_items.h"

namespace kvc {

struct PageTerms;  // The owner's; src/tier does not need its definition.

// The page that a group has for one block of tokens, or for the states after the block, with the keys that name the
// page in tiers.
struct TierPage {
  int32_t group = 0;
  int32_t page = 0;       // page id in the pools of the group
  int64_t block = 0;      // its first token is block * page_size; in store_all, number of the page
  kvc_tier_key key = {};  // key of its object
  PageKey page_key = {}, parent_key = {};
  // The tokens of the sequence from position tokens_begin on, at least those of the page; null if the sequence is
  // suspended.
  std::shared_ptr<const std::vector<int32_t>> tokens;
  int64_t tokens_begin = 0;
  // Of a suspended sequence: the place of the page, and the tokens that each layer holds (PageCopy::for_each_other).
  int64_t position = 0;
  std::shared_ptr<const std::vector<int64_t>> held;
  std::shared_ptr<const PageTerms> terms;  // for the owner's calls of `changed`; null: it ignores them
};

class TierWorker {
 public:
  // The functions of the cache that the worker's thread calls.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The size of the object of a page.
    virtual int64_t object_bytes(const TierPage& page) const = 0;
    // Makes the object of a page in memory of this size. Returns false if `valid` was false under the owner's lock, if
    // the device failed, or if there is no memory.
    virtual bool read_page(const TierPage& page, const std::atomic<bool>& valid, const ObjectMemory& object) = 0;
    enum class Written : uint8_t { kYes, kOtherObject, kFailed };
    // Checks that an object belongs to this page, and writes its contents to the page. Returns kOtherObject if the
    // object is damaged or is that of another page, and kFailed if the device failed or if there is no memory.
    virtual Written write_page(const TierPage& page, const ObjectMemory& object) = 0;
    // Called after a tier has stored a page or was found to have it (has = true), and after a load has missed it or its
    // object was removed (has = false). page.terms may be null.
    virtual void changed(int32_t tier, const TierPage& page, bool has) = 0;
    // Called in a child of fork(), before fork() returns. The function must reset the owner's lock to unlocked, because
    // the worker's thread may have held it during the fork, and does not exist in the child.
    virtual void in_child() noexcept = 0;
  };

  // Which published pages a tier stores.
  enum class Stores : uint8_t { kPublished, kReused, kNothing, kEvicted };
  struct Tier {
    kvc_tier table = {};
    Stores stores = Stores::kPublished;
    int64_t min_tokens = 0;     // pages of a shorter publish are not stored
    HostStore* host = nullptr;  // null, or the objects of a host tier, which are read and written in place
    std::string medium;         // name of the tier in messages of events
  };
  // The tier in which a page was found.
  struct Found {
    int32_t tier = -1;     // -1 = in no tier
    bool pending = false;  // no tier has it so far, and a tier answered PENDING
    int64_t bytes = 0;
    uint8_t hits = 0, misses = 0;  // a bit for each tier that answered HIT or MISS to a lookup
  };
  struct LoadPage {
    TierPage page;
    Found found;
  };
  struct Counts {
    int64_t queued = 0;         // pages that wait for a store, or are being stored
    int64_t stored_pages = 0;   // stores that succeeded
    int64_t dropped_pages = 0;  // pages that were released before they were copied, or did not fit in the queue
    int64_t failed_stores = 0;
    int64_t loading_pages = 0;  // pages of loads that are not done
    int64_t loaded_pages = 0;
    int64_t failed_loads = 0;  // pages that a tier did not have, or that had another object
  };

  static constexpr int32_t kMaxTiers = 8;
  static constexpr int64_t kMaxQueued = 1 << 16;
  static constexpr int64_t kMaxOpenItems = 16;
  static constexpr size_t kMaxSearched = 64;           // most pages at the front of the queue that are looked up
  static constexpr int64_t kMaxKnown = 1024;           // most keys that a search looks up under one hold of the lock
  static constexpr int64_t kSearchNs = 1'000'000'000;  // the longest search

  explicit TierWorker(Owner* owner);
  // Cancels loads and stores that were not submitted, waits for submitted items and for removals, and closes the tiers.
  ~TierWorker();
  TierWorker(const TierWorker&) = delete;
  TierWorker& operator=(const TierWorker&) = delete;

  // Adopts an open tier.
  Status add(const Tier& tier);
  int32_t num_tiers() const noexcept { return num_tiers_.load(std::memory_order_acquire); }
  // The number of tiers that read files by io_uring.
  int32_t num_by_io_uring() const noexcept;
  const Tier& tier(int32_t index) const noexcept { return tiers_[index]; }
  std::span<const Tier> tiers() const noexcept { return {tiers_, static_cast<size_t>(num_tiers())}; }
  const std::atomic<bool>& in_child() const noexcept { return in_child_; }

  // Finds, for each key, the first tier that has it.
  void lookup(std::span<const kvc_tier_key> keys, std::span<Found> found);
  // How fast a tier loads, by its measurements.
  struct Speed {
    int64_t latency_ns = 0;
    int64_t bytes_per_second = 0;  // 0 = nothing was measured yet
    // Returns the estimated time of a load of `bytes` bytes; 0 if nothing was measured yet.
    int64_t load_ns(int64_t bytes) const noexcept;
  };
  Speed speed(int32_t tier) const;

  // Queues a page for a tier, unless it is queued already. Returns false if the queue is full.
  bool store(int32_t tier, TierPage page);
  // Call it when a page is released. Drops the queued stores of the page.
  void forget(int32_t group, int32_t page);

  // Starts a load, and returns its number. progress: nullable; is told which layers are in the pools.
  Status load(std::vector<LoadPage> pages, uint64_t* load, std::shared_ptr<LoadProgress> progress = nullptr);
  // Makes a load with progress load the pages of groups with early layers first. limit_ns: if > 0, the load is
  // cancelled after this time.
  void load_by_group(uint64_t load, int64_t limit_ns);
  // Starts to store pages, each in the first tier that accepts it. Returns a number for poll_load. The caller has set
  // found.bytes of each page to the size of its object. If host tiers have no room for all pages, and no other tier
  // takes them, nothing is stored and nothing is evicted.
  Status store_all(std::vector<LoadPage> pages, uint64_t* load);
  // Removes the objects of pages in the background. Ignores pages that are in no tier.
  void remove(std::vector<LoadPage> pages);
  // Whether some tier may store the pages of suspended sequences.
  bool can_store() const noexcept { return next_tier(-1) >= 0; }
  // Starts a load without pages. It is done when no key is PENDING in a tier, or after kSearchNs.
  Status search(std::vector<kvc_tier_key> keys, uint64_t* load);
  struct Loaded {
    bool known = false;
    bool done = false;
    int64_t first_failed = INT64_MAX;  // first block that could not be loaded or stored
    std::vector<LoadPage> pages;       // for store_all: the pages, with the tiers that have their objects
  };
  // After it has returned `done`, the number of the load is not valid.
  Loaded poll_load(uint64_t load);
  void cancel_load(uint64_t load);
  // A descriptor that is readable while a finished load was not polled; -1 before the first tier.
  int descriptor() const noexcept { return done_event_; }

  Counts counts();

 private:
  struct Load {
    TierWork work = TierWork::kLoad;
    std::vector<LoadPage> pages;
    size_t next = 0;   // first page that was not submitted
    int64_t open = 0;  // pages that were submitted and are not done
    bool cancelled = false;
    int64_t first_failed = INT64_MAX;
    std::vector<kvc_tier_key> searched;  // keys that may be PENDING
    int64_t search_until_ns = 0;
    std::shared_ptr<LoadProgress> progress;
    int64_t cancel_at_ns = INT64_MAX;
    bool done() const noexcept { return open == 0 && (cancelled || (next == pages.size() && searched.empty())); }
  };
  // An item of a tier, with its buffer. Items are reused.
  struct Item {
    enum class State : uint8_t { kFree, kRefused, kOpen };  // kRefused: the tier returned RETRY
    State state = State::kFree;
    int32_t tier = 0;
    uint64_t job = 0;
    uint64_t load = 0;  // 0 = a store from the queue
    TierWork work = TierWork::kStore;
    size_t index = 0;  // index in the pages of the load
    TierPage page;
    int64_t bytes = 0;            // of the object; 0 in a removal
    std::vector<uint8_t> object;  // not used in a host tier
    bool made = false;            // `object` is the object of the page
    kvc_tier_buffer buffer = {};
    kvc_tier_item item = {};
  };
  struct Queued {
    TierPage page;
    int32_t tier = 0;
    uint64_t number = 0;
  };

  // Data that the public methods and the thread share.
  struct Work {
    std::deque<Queued> queue;
    std::unordered_map<uint64_t, uint64_t> queued;  // from place_of() to Queued::number
    uint64_t last_number = 0;
    std::map<uint64_t, Load> loads;
    uint64_t last_load = 0;
    uint64_t reading = 0;  // place_of() of the page that the owner reads; 0 = none
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
  size_t count_fitting(const std::vector<LoadPage>& pages) const noexcept;
  bool start_page(Item& item);
  bool start_store(Item& item);
  bool start(Item& item, const std::atomic<bool>& valid);
  bool store_in_place(HostStore& host, const Item& item, const std::atomic<bool>& valid, int32_t* result);
  void submit(Item& item);
  void finish(Item& item, int32_t result);
  Item* free_item() noexcept;
  bool write(Item& item);
  bool cancel_late();
  void end_page(const Item& item, bool ok);
  // Returns the first tier after `tier` that stores objects; -1 = none.
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
  Tier tiers_[kMaxTiers];  // [num_tiers_]; entries never change
  std::atomic<int32_t> num_tiers_ = 0;
  int work_event_ = -1, done_event_ = -1;
  std::atomic<bool> in_child_ = false;  // this process is a child of fork()
  std::atomic<bool> reading_valid_ = false;

  Mutex mutex_;
  pthread_t thread_ = {};
  bool started_ KVC_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Work> work_ KVC_GUARDED_BY(mutex_) = std::make_unique<Work>();

  std::unique_ptr<Item[]> items_ = std::make_unique<Item[]>(kMaxOpenItems);  // used only by the thread
  uint64_t last_job_ = 0;                                                    // used only by the thread
  bool searching_ = false;  // used only by the thread: its last pass met a PENDING key
  bool limited_ = false;    // used only by the thread: its last pass met a load with a time limit

  const ForkWatch fork_watch_;
};

}  // namespace kvc

// TierJobs: the jobs of a cache with tiers. It queues published pages to be stored in tiers. It plans, starts and
// finishes loads of pages from tiers.
//
// Thread safety: the caller of a method marked "locked" must hold the cache's lock. Any thread may call the other
// methods. Ownership: owns the tiers. It is destroyed before the rest of the cache, because its thread uses the pools.
// Invariants
//   1. If handed(group, page) is 1, the index holds the page, and the page was queued for a tier.
//   2. The job of a load has its own busy sequence, whose id no caller has. While the job searches, it has none yet.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/lazy_array.h"
#include "cache/cache_core.h"
#include "cache/page_objects.h"
#include "cache/prefix_query.h"
#include "context/device_stream.h"
#include "tier/tier_worker.h"

namespace kvc {

class TierJobs final : public TierWorker::Owner, public PageWatcher {
 public:
  // What a load would do.
  struct Plan {
    int64_t found = 0;                        // whole pages of tokens that the pools have
    int64_t tokens = 0;                       // tokens that the pools have after the load, at least `found`
    int64_t ns = 0;                           // estimated time of the load; 0 = unknown
    std::vector<kvc_tier_key> searched;       // keys whose lookup is not done; their pages are not in the plan
    std::vector<TierWorker::LoadPage> pages;  // without the numbers of their pages in the pools
  };

  // The cache must have a prefix index and a fingerprint.
  static Status create(CacheCore* core, std::unique_ptr<TierJobs>* out) KVC_REQUIRES(core->mutex);
  ~TierJobs() override;

  Status add(const TierWorker::Tier& tier) { return worker_.add(tier); }
  int descriptor() const noexcept { return worker_.descriptor(); }
  int32_t num_tiers() const noexcept { return worker_.num_tiers(); }
  TierWorker::Counts counts() { return worker_.counts(); }

  // Copies the tokens of a query, and computes the keys of its whole pages.
  KeyedQuery keyed(const PrefixQuery& query) const;

  // Locked. Queues the index's pages of the first `published` tokens to be stored in tiers. The index had the first
  // `known` of these tokens before the publish.
  void queue_published(const KeyedQuery& query, int64_t published, int64_t known);
  // Locked. Plans the load after which the index can serve the longest prefix. `match` is the present match of the
  // query.
  Plan plan(const KeyedQuery& query, const PrefixIndex::Match& match);
  // What a job must load.
  struct Request {
    KeyedQuery query;
    PrefixIndex::Terms terms;
    int64_t most_tokens = 0;  // most tokens that match and attach may find
    int64_t token_ns = 0;     // as in kvc_prefix_load_options
  };
  // Locked. Starts the load of a plan. If lookups in tiers are not done, starts a job that waits for them and then
  // makes a new plan. Sets *job to 0 if there is nothing to load, or if computing the tokens is faster.
  Status start(Request request, const PrefixIndex::Match& match, Plan plan, uint64_t* job);
  // Locked. If the job has ended, publishes the pages that it loaded.
  Status poll(uint64_t job, bool* done, int64_t* tokens);
  // Locked.
  Status cancel(uint64_t job);
  // Locked. Start a job that moves the pages of a sequence to tiers, or back to the pools. (tier_suspends.cc)
  Status suspend(uint64_t sequence, uint64_t* job);
  Status resume(uint64_t sequence, uint64_t* job);
  // Locked. Call it when a sequence was removed. Removes the objects of the sequence from tiers, if it was suspended.
  void forget(uint64_t sequence) noexcept;
  void forget_all() noexcept;
  int64_t num_suspended() const noexcept;
  bool has_jobs() const noexcept { return !jobs_.empty(); }

  // The worker's thread calls these methods.
  bool read_page(const TierPage& page, const std::atomic<bool>& valid, std::vector<uint8_t>* object) override;
  bool write_page(const TierPage& page, std::span<const uint8_t> object) override;
  void in_child() noexcept override;
  // Locked. The index calls this method.
  void released(int32_t group, int32_t page) noexcept override;

 private:
  struct Job {
    enum class Kind : uint8_t { kLoad, kSuspend, kResume };
    Kind kind = Kind::kLoad;
    Request request;
    bool cancelled = false;
    bool searching = false;  // if true, `load` is the number of a search, and there is no sequence yet
    int64_t found = 0, tokens = 0;
    uint64_t sequence = 0;  // 0 = none yet; for a suspend or resume, the caller's sequence
    uint64_t load = 0;      // number of the job in the worker
  };
  // For one group: in which tier the page of each block is, from the first block of the lookup on.
  struct GroupPages {
    std::vector<TierWorker::Found> found;
    // [blocks]: the length of the run of blocks with pages in tiers that ends with this block; 0 if no tier has its
    // page
    std::vector<int64_t> run;
  };

  explicit TierJobs(CacheCore* core) : core_(*core), worker_(this) {}
  TierPage page_of(const KeyedQuery& query, int32_t group, int64_t block) const;
  Status begin_load(Job* job, Plan plan) KVC_REQUIRES(core_.mutex);
  Status finish_load(const Job& job, int64_t first_failed, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  Status finish_suspend(const Job& job, TierWorker::Loaded stored, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  Status finish_resume(const Job& job, const TierWorker::Loaded& loaded, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  std::vector<int64_t> held_tokens(int32_t slot) const KVC_REQUIRES(core_.mutex);
  static Status make_suspend_key(PageKey* key);
  void end_suspends() noexcept;
  void remove_objects(std::vector<TierWorker::LoadPage> pages) noexcept;
  static bool worth_loading(const Request& request, const PrefixIndex::Match& match, const Plan& plan) noexcept;
  int64_t match_whole_pages(const KeyedQuery& query, int64_t tokens) KVC_REQUIRES(core_.mutex);
  GroupPages look_up(const KeyedQuery& query, int32_t group, int64_t first, int64_t end, bool until_miss);
  uint8_t& handed(int32_t group, int32_t page) noexcept { return handed_[static_cast<size_t>(group)][page]; }

  CacheCore& core_;
  DeviceStream stream_;  // of the worker's thread
  std::unique_ptr<PageObjects> objects_;
  std::vector<LazyArray<uint8_t>> handed_;  // [groups], [pages]: 1 = queued for a tier
  std::map<uint64_t, Job> jobs_;
  std::map<uint64_t, std::vector<TierWorker::LoadPage>>
      suspended_;             // by sequence: its pages, and the places of their objects
  PageKey suspend_key_ = {};  // random bytes in the page keys of these objects
  uint64_t last_job_ = 0;
  TierWorker worker_;  // the last member, because its thread uses the others
};

}  // namespace kvc

// TierJobs: the jobs of a cache with tiers. It queues published pages to be stored in tiers, loads pages from tiers,
// and suspends and resumes sequences.
//
// Thread safety: the caller of a method marked "locked" must hold the cache's lock. Any thread may call the other
// methods. Ownership: owns the tiers. It is destroyed before the rest of the cache, because its thread uses the pools.
// Invariants
//   1. If bit t of handed(group, page) is set, the index has the page, and the page was queued for tier t. If bit t of
//      wanted(group, page) is set, the index has the page, and tier t stores it before it is evicted.
//   2. The job of a load has its own busy sequence, whose id no caller has. While the job still searches tiers, it has
//      no sequence. Pending sequences that are attached to the job share the pages of its sequence
//      (CacheCore::pending).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/lazy_array.h"
#include "cache/cache_core.h"
#include "cache/page_objects.h"
#include "cache/prefix_query.h"
#include "cache/tier_watch.h"
#include "context/device_stream.h"
#include "tier/tier_worker.h"

namespace kvc {

class TierJobs final : public TierWorker::Owner, public PageWatcher {
 public:
  // What a load would do.
  struct Plan {
    int64_t found = 0;   // number of tokens that the pools have, in whole pages
    int64_t tokens = 0;  // number of tokens that the pools have after the load; `found` = no load
    int64_t ns = 0;      // estimated time of the load, in nanoseconds; 0 = unknown
    std::array<int64_t, TierWorker::kMaxTiers> tier_tokens = {};  // as in kvc_prefix_hit
    std::vector<kvc_tier_key> searched;       // keys for which a tier still searches; the plan lacks their pages
    std::vector<TierWorker::LoadPage> pages;  // the page ids in the pools are not set yet
  };

  // The cache must have a prefix index and a fingerprint.
  static Status create(CacheCore* core, std::unique_ptr<TierJobs>* out) KVC_REQUIRES(core->mutex);
  ~TierJobs() override;

  // Throws std::bad_alloc.
  Status add(const TierWorker::Tier& tier);
  std::span<const TierWorker::Tier> tiers() const noexcept { return worker_.tiers(); }
  int descriptor() const noexcept { return worker_.descriptor(); }
  int32_t num_tiers() const noexcept { return worker_.num_tiers(); }
  int32_t num_by_io_uring() const noexcept { return worker_.num_by_io_uring(); }
  TierWorker::Counts counts() { return worker_.counts(); }

  // Copies the tokens of a query, and computes the keys of its whole pages. session: of a publish; else 0.
  KeyedQuery keyed(const PrefixQuery& query, uint64_t session = 0) const;

  // Locked. If events tell of tiers, makes the events of the pages that tiers report as lost.
  void take_removals();

  // Locked. Queues pages to be stored in tiers: the pages that the index has for the first `published` tokens of the
  // sequence. The index had the first `known` of these tokens before the publish.
  void queue_published(uint64_t sequence, const KeyedQuery& query, int64_t published, int64_t known);
  // When a load saves time.
  struct Gate {
    int64_t token_ns = INT64_MAX;  // time to compute a token; INT64_MAX = load as much as possible
    int64_t most_tokens = 0;       // the largest number of tokens that match and attach may find
    // How much time a load saves that takes `load_ns` and makes `tokens` tokens attachable, instead of `matched`.
    double saved_ns(int64_t tokens, int64_t matched, int64_t load_ns) const noexcept {
      return static_cast<double>(std::min(tokens, most_tokens) - matched) * static_cast<double>(token_ns) -
             static_cast<double>(load_ns);
    }
  };
  // Locked. Plans the load that saves most time, which may be none. `match` is the present match of the query.
  Plan plan(const KeyedQuery& query, const PrefixIndex::Match& match, const Gate& gate);
  // What a job must load.
  struct Request {
    KeyedQuery query;
    PrefixIndex::Terms terms;
    Gate gate;
  };
  // Locked. Starts the load of a plan. If tiers still search for keys, starts a job that waits for them and then makes
  // a new plan. Sets *job to 0 if the plan loads nothing.
  Status start(Request request, Plan plan, uint64_t* job);
  // Locked. If the job has ended, completes it: publishes the pages of a load, or ends the suspend or resume. tokens:
  // as in kvc_job_info.
  Status poll(uint64_t job, bool* done, int64_t* tokens);
  // Locked. Ends a job early. It must still be polled until it is done.
  Status cancel(uint64_t job);
  // Locked. Makes a sequence that shares the pages of a load. limit_ns: as kvc_pending_options.timeout_ns.
  // (tier_pending.cc)
  Status attach(uint64_t job, bool waits, int64_t limit_ns, uint64_t* sequence, int64_t* tokens);
  // Locked. Start a job that moves the pages of a sequence to tiers, or back to the pools. (tier_suspends.cc)
  Status suspend(uint64_t sequence, uint64_t* job);
  Status resume(uint64_t sequence, uint64_t* job);
  // Locked. Call it when a sequence was removed. Forgets its publishes. If it was suspended, removes its objects from
  // tiers.
  // forget_all does this for all sequences.
  void forget(uint64_t sequence) noexcept;
  void forget_all() noexcept;
  // Locked.
  int64_t num_suspended() const noexcept;
  bool has_jobs() const noexcept {
    core_.mutex.assert_held();
    return !jobs_.empty();
  }

  // The worker's thread calls object_bytes, read_page and write_page. A child of fork() calls in_child.
  int64_t object_bytes(const TierPage& page) const override { return objects_->object_bytes(page); }
  bool read_page(const TierPage& page, const std::atomic<bool>& valid, const ObjectMemory& object) override;
  Written write_page(const TierPage& page, const ObjectMemory& object) override;
  void changed(int32_t tier, const TierPage& page, bool has) override;
  void in_child() noexcept override;
  // Locked. The index calls this method.
  void released(int32_t group, int32_t page) noexcept override;
  // Locked. Queues pages that the pools will evict next, for tiers with KVC_TIER_STORE_EVICTED. The index calls it, and
  // methods that make pages idle.
  void evicted() noexcept override;

 private:
  struct Job {
    enum class Kind : uint8_t { kLoad, kSuspend, kResume };
    Kind kind = Kind::kLoad;
    Request request;
    bool cancelled = false;
    bool searching = false;                  // if true, `load` is a search in the tiers, and there is no sequence yet
    int64_t found = 0, tokens = 0;           // of a load: as in Plan
    uint64_t sequence = 0;                   // 0 = none yet; for a suspend or resume, the caller's sequence
    uint64_t load = 0;                       // the worker's number of the load
    std::shared_ptr<LoadProgress> progress;  // of a load that has a sequence
  };
  // What a lookup has found for one group. Element i is for the block number i after the first block of the lookup.
  struct GroupPages {
    std::vector<TierWorker::Found> found;
    // [blocks]: how many consecutive blocks, up to and including this one, have their pages in tiers; 0 if no tier has
    // the page of this block
    std::vector<int64_t> run;
    std::vector<std::vector<int64_t>> sums;  // [tiers, blocks + 1]: bytes in a tier of all blocks before this one
  };
  // What a lookup has found for all groups, from block `first` on.
  struct Stored {
    const CacheCore& core;
    int64_t first = 0;
    int64_t most_tokens = 0;  // as in Gate
    std::vector<GroupPages> groups;

    // The first block that a group must load for a prefix of `end` blocks.
    int64_t first_loaded(int32_t group, int64_t end) const noexcept;
    // Whether the tiers have all that a prefix of `end` blocks needs, and attach then finds at least the blocks before
    // the last one.
    bool serves(int64_t end) const noexcept;
    void sum_bytes(int32_t num_tiers);
    // The bytes in a tier of all that a prefix of `end` blocks needs. Call sum_bytes before.
    int64_t bytes(int32_t tier, int64_t end) const noexcept;
    // The last of the tiers from which a prefix of `end` blocks loads pages of this block; -1 if it loads none of them.
    int32_t last_tier(int64_t block, int64_t end) const noexcept;
  };

  explicit TierJobs(CacheCore* core) : core_(*core), watch_(core, &worker_), worker_(this) {}
  TierPage page_of(const KeyedQuery& query, int32_t group, int64_t block) const;
  void queue_page(const KeyedQuery& query, int32_t group, int64_t block, int32_t number, bool reused)
      KVC_REQUIRES(core_.mutex);
  void queue_next(int32_t group) KVC_REQUIRES(core_.mutex);
  void hand(int32_t tier, TierPage page) KVC_REQUIRES(core_.mutex);
  Status begin_load(uint64_t id, Job* job, Plan plan) KVC_REQUIRES(core_.mutex);
  std::shared_ptr<LoadProgress> make_progress(uint64_t job, const std::vector<TierWorker::LoadPage>& pages) const;
  Status finish_load(const Job& job, int64_t first_failed, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  Status finish_suspend(const Job& job, TierWorker::Loaded stored, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  Status finish_resume(const Job& job, const TierWorker::Loaded& loaded, int64_t* tokens) KVC_REQUIRES(core_.mutex);
  std::vector<int64_t> held_tokens(int32_t slot) const KVC_REQUIRES(core_.mutex);
  static Status make_suspend_key(PageKey* key);
  void remove_objects(std::vector<TierWorker::LoadPage> pages) noexcept;
  int64_t match_whole_pages(const KeyedQuery& query, int64_t tokens) KVC_REQUIRES(core_.mutex);
  static int64_t load_ns(const Stored& stored, int64_t end, const std::vector<TierWorker::Speed>& speeds);
  Stored look_up_all(const KeyedQuery& query, int64_t first, int64_t* end) KVC_REQUIRES(core_.mutex);
  GroupPages look_up(const KeyedQuery& query, int32_t group, int64_t first, int64_t end, bool until_miss)
      KVC_REQUIRES(core_.mutex);
  uint8_t& handed(int32_t group, int32_t page) noexcept KVC_REQUIRES(core_.mutex) {
    return handed_[static_cast<size_t>(group)][page];
  }
  uint8_t& wanted(int32_t group, int32_t page) noexcept KVC_REQUIRES(core_.mutex) {
    return wanted_[static_cast<size_t>(group)][page];
  }

  CacheCore& core_;
  TierWatch watch_;
  DeviceStream stream_;  // used by the worker's thread
  std::unique_ptr<PageObjects> objects_;
  // [groups], [pages]: a bit for each tier for which the page was queued, and for each tier that stores it later
  std::vector<LazyArray<uint8_t>> handed_ KVC_GUARDED_BY(core_.mutex), wanted_ KVC_GUARDED_BY(core_.mutex);
  // The last list of the pages that a group evicts next.
  struct Listed {
    int64_t pages = 0;     // number of listed pages that were idle
    int64_t released = 0;  // number of pages that the index has released since
  };
  std::vector<Listed> listed_ KVC_GUARDED_BY(core_.mutex);  // [groups]
  std::map<uint64_t, Job> jobs_ KVC_GUARDED_BY(core_.mutex);
  // By sequence: how many of its tokens the index had before its first publish. Other requests have published these.
  std::map<uint64_t, int64_t> known_before_ KVC_GUARDED_BY(core_.mutex);
  // By sequence: its pages, and the places of their objects.
  std::map<uint64_t, std::vector<TierWorker::LoadPage>> suspended_ KVC_GUARDED_BY(core_.mutex);
  PageKey suspend_key_ = {};  // random bytes in the page keys of these objects; constant after `create`
  uint64_t last_job_ KVC_GUARDED_BY(core_.mutex) = 0;
  TierWorker worker_;  // the last member, because its thread uses the others
};

}  // namespace kvc

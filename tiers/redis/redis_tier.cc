// The Redis tier fills the table of functions that callers use. Its threads take items from a queue. Each thread has a
// Session, which executes the items.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <memory>
#include <new>
#include <vector>

#include "base/mutex.h"
#include "known_objects.h"
#include "kvcache_redis.h"
#include "session.h"
#include "tier/job_queue.h"
#include "tier/submit_job.h"
#include "tier/tier_items.h"
#include "tier/tier_table.h"
#include "tier/tier_threads.h"
#include "tier/transfer_meter.h"

namespace kvc::redis {
namespace {

constexpr int64_t kMaxObjectBytes = (int64_t{512} << 20) - kFrameHeaderBytes;  // a Redis value has at most 512 MiB
constexpr size_t kSearchKeys = 512;                                            // largest number of keys in one search

class RedisTier {
 public:
  explicit RedisTier(Options options)
      : owner_(::getpid()),
        options_(std::move(options)),
        limits_{options_.max_items, kMaxObjectBytes},
        queue_(options_.max_items, /*errands_first=*/true),
        known_(int64_t{options_.lookup_ms} * 1'000'000),
        servers_(options_.addresses),
        threads_(options_.threads, [this] { run(); }) {}

  Status open() {
    KVC_TRY(queue_.open());
    if (options_.tls.on) KVC_TRY(TlsContext::create(options_.tls, &tls_));
    return options_.lazy ? Status() : Session(options_, &servers_, tls_.get()).connect();
  }
  int32_t max_job_items() const noexcept { return options_.max_items; }

  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept {
    std::fill(found, found + n, kvc_tier_found{KVC_TIER_MISS, 0, 0});
    if (is_child()) return;
    try {
      if (known_.lookup(n, keys, found, steady_ns()) && threads_.start().ok()) queue_.request_errand();
    } catch (const std::bad_alloc&) {
      std::fill(found, found + n, kvc_tier_found{KVC_TIER_RETRY, 0, 0});
    }
    const int64_t hits = std::count_if(found, found + n, [](const auto& f) { return f.result == KVC_TIER_HIT; });
    MutexLock lock(mutex_);
    counts_.lookups += n;
    counts_.hits += hits;
  }

  // Accepts all items or none. Sets *accepted to false if the queue is full.
  Status submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items, bool* accepted) noexcept {
    if (is_child()) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "the tier belongs to process %ld, of which this is a child",
                           static_cast<long>(owner_));
    }
    KVC_TRY(check_tier_items(work, n, items, limits_));
    KVC_TRY(threads_.start());
    return submit_job(&queue_, &known_, work, job, n, items, accepted);
  }

  int64_t poll(kvc_tier_completion* done, int64_t capacity) noexcept {
    return is_child() ? 0 : queue_.poll(done, capacity);
  }
  int32_t descriptor() const noexcept { return queue_.descriptor(); }

  void cancel(uint64_t job) noexcept {
    if (is_child()) return;
    queue_.cancel(job, [this](const TierTask& task) {
      if (task.work == TierWork::kStore) known_.end_store(task.item->key);
      MutexLock lock(mutex_);
      ++counts_.cancelled;
    });
  }

  void stats(kvc_tier_stats* stats) noexcept {
    if (is_child()) return;
    // This call is made without mutex_, because cancel locks mutex_ while it holds the queue's lock.
    const int64_t open_items = queue_.open_items();
    MutexLock lock(mutex_);
    *stats = counts_;
    stats->open_items = open_items;
    stats->load_latency_ns = load_meter_.latency_ns();
    stats->load_bytes_per_second = load_meter_.bytes_per_second();
    stats->store_latency_ns = store_meter_.latency_ns();
    stats->store_bytes_per_second = store_meter_.bytes_per_second();
  }

  // A child of fork() closes only the descriptor of the queue. It does not free the tier, because threads that do not
  // exist in the child may have held the locks of the tier. The child's copies of the sockets are closed when the child
  // exits or calls exec.
  static void close(RedisTier* tier) noexcept {
    if (tier->is_child()) {
      tier->queue_.forget_descriptor();
      return;
    }
    tier->queue_.stop();
    tier->threads_.join();
    delete tier;
  }

 private:
  // Returns whether this process is a child of the process that opened the tier. In a child of fork(), the threads of
  // the tier do not exist, and its locks may be held forever.
  bool is_child() const noexcept { return ::getpid() != owner_; }

  void run() noexcept {
    Session session(options_, &servers_, tls_.get());
    TierTask task;
    for (;;) {
      const JobQueue::Next next = queue_.take(&task);
      if (next == JobQueue::Next::kStop) return;
      if (next == JobQueue::Next::kErrand) {
        search(session);
        continue;
      }
      const Session::Outcome outcome = perform(task, session);
      if (task.work == TierWork::kStore) known_.end_store(task.item->key);
      queue_.complete(task, outcome.result, outcome.os_error);
    }
  }

  void search(Session& session) noexcept {
    std::vector<kvc_tier_key> keys;
    std::vector<int64_t> bytes;
    try {
      keys = known_.take(kSearchKeys);
      if (known_.waiting()) queue_.request_errand();  // another thread then searches the other keys
      session.search(keys, &bytes);
    } catch (const std::bad_alloc&) {
      bytes.clear();
    }
    for (size_t i = 0; i < keys.size(); ++i) known_.searched(keys[i], i < bytes.size() ? bytes[i] : -1, steady_ns());
  }

  Session::Outcome perform(const TierTask& task, Session& session) noexcept {
    const kvc_tier_item& item = *task.item;
    TransferMeter* const meter = task.work == TierWork::kLoad    ? &load_meter_
                                 : task.work == TierWork::kStore ? &store_meter_
                                                                 : nullptr;
    TransferMeter::Item measured;
    if (meter != nullptr) {
      MutexLock lock(mutex_);
      measured = meter->begin(steady_ns());
    }
    Session::Outcome outcome;
    try {
      outcome = task.work == TierWork::kLoad    ? session.load(item)
                : task.work == TierWork::kStore ? session.store(item)
                                                : session.remove(item.key);
    } catch (const std::bad_alloc&) {
      outcome = {KVC_TIER_FAILED, ENOMEM};
    }
    learn(task.work, item, outcome);
    MutexLock lock(mutex_);
    const bool ok = outcome.result == KVC_TIER_OK;
    if (meter != nullptr) meter->end(measured, steady_ns(), ok ? item.bytes : 0);
    counts_.misses += outcome.result == KVC_TIER_MISS;
    counts_.failed += outcome.result == KVC_TIER_FAILED;
    counts_.damaged += outcome.damaged;
    if (outcome.result == KVC_TIER_FAILED) counts_.last_os_error = outcome.os_error;
    if (!ok) return outcome;
    (task.work == TierWork::kLoad ? counts_.loads : task.work == TierWork::kStore ? counts_.stores : counts_.removes)++;
    if (task.work == TierWork::kLoad) counts_.loaded_bytes += item.bytes;
    if (task.work == TierWork::kStore) counts_.written_bytes += item.bytes;
    return outcome;
  }

  // Records in known_ what the result of an item shows about its object.
  void learn(TierWork work, const kvc_tier_item& item, const Session::Outcome& outcome) noexcept {
    if (outcome.result == KVC_TIER_FAILED) {
      if (work != TierWork::kLoad) known_.forget(item.key);  // the server may have executed the command
    } else if (work == TierWork::kStore) {
      known_.learned(item.key, item.bytes, steady_ns());
    } else {
      known_.learned(item.key, work == TierWork::kLoad ? outcome.found_bytes : -1, steady_ns());
    }
  }

  const pid_t owner_;
  const Options options_;
  const TierLimits limits_;
  std::unique_ptr<TlsContext> tls_;  // null without TLS; set before the threads start
  JobQueue queue_;
  KnownObjects known_;
  Servers servers_;
  Mutex mutex_;
  TransferMeter load_meter_ KVC_GUARDED_BY(mutex_), store_meter_ KVC_GUARDED_BY(mutex_);
  kvc_tier_stats counts_ KVC_GUARDED_BY(mutex_) = {};
  TierThreads threads_;
};

void fill_table(RedisTier* redis, kvc_tier* tier) {
  kvc_tier_init(tier);
  fill_tier_table(redis, tier);
  tier->name = "redis";
  tier->flags = KVC_TIER_REMOTE;
  tier->max_object_bytes = kMaxObjectBytes;
  tier->max_job_items = redis->max_job_items();
}

// Calls `read` to get the options, and opens the tier with them.
template <typename Read>
kvc_status open(const char* function, kvc_tier* tier, kvc_error* error, Read read) noexcept {
  Status status;
  try {
    Options options;
    status = tier != nullptr ? read(&options) : Status::error(KVC_ERROR_NULL_ARGUMENT, "tier is NULL");
    if (status.ok()) {
      std::unique_ptr<RedisTier, void (*)(RedisTier*)> redis(new RedisTier(std::move(options)), RedisTier::close);
      status = redis->open();
      if (status.ok()) fill_table(redis.release(), tier);
    }
  } catch (const std::bad_alloc&) {
    status = Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a Redis tier");
  }
  if (!status.ok() && error != nullptr) status.write_to(function, error);
  return status.code();
}

}  // namespace
}  // namespace kvc::redis

extern "C" kvc_status kvc_redis_tier_open(const kvc_redis_config* config, kvc_tier* tier, kvc_error* error) {
  return kvc::redis::open("kvc_redis_tier_open", tier, error, [&](kvc::redis::Options* options) {
    if (config == nullptr) return kvc::Status::error(KVC_ERROR_NULL_ARGUMENT, "config is NULL");
    return kvc::redis::options_of(*config, options);
  });
}

// The function that a plug-in exports.
extern "C" KVC_API kvc_status kvc_tier_open(uint32_t version, const char* url, kvc_tier* tier, kvc_error* error) {
  return kvc::redis::open("kvc_tier_open", tier, error, [&](kvc::redis::Options* options) {
    if (version != KVC_TIER_VERSION) {
      return kvc::Status::error(KVC_ERROR_UNSUPPORTED, "version %u of the table, and this tier has %d", version,
                                KVC_TIER_VERSION);
    }
    return kvc::redis::options_of_url(url != nullptr && url[0] != '\0' ? url : "redis://127.0.0.1", options);
  });
}

#include "tier/disk_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "system/process.h"
#include "system/read_ring.h"
#include "tier/disk_store.h"
#include "tier/job_queue.h"
#include "tier/submit_job.h"
#include "tier/tier_items.h"
#include "tier/tier_table.h"
#include "tier/tier_threads.h"

namespace kvc {
namespace {

int64_t largest_object(const DiskTierOptions& options) {
  const int64_t blocks = options.capacity_bytes / kFrameBlockBytes * kFrameBlockBytes;
  return std::min(kMaxFramePayloadBytes, blocks - kFrameHeaderBytes);
}

// A disk tier has a queue of items, a store, and threads that take items from the queue and execute them.
class DiskTier {
 public:
  explicit DiskTier(const DiskTierOptions& options)
      : owner_(process_id()),
        limits_{options.max_items, largest_object(options)},
        queue_(options.max_items),
        store_(options),
        threads_(options.threads, [this] { run(); }) {}

  Status open(const DiskTierOptions& options) {
    KVC_TRY(queue_.open());
    KVC_TRY(open_rings(options));
    KVC_TRY(store_.open(options.directory));
    if (!store_.scanned()) {
      KVC_TRY(threads_.start());
      queue_.request_errand();
    }
    return Status();
  }

  bool reads_together() const noexcept { return !rings_.empty(); }

  // Returns whether this process is a child of the process that opened the tier. In a child of fork(), the threads of
  // the tier do not exist, and its locks may be held forever.
  bool is_child() const noexcept { return process_id() != owner_; }

  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept {
    if (is_child()) {
      for (int64_t i = 0; i < n; ++i) found[i] = {KVC_TIER_MISS, 0, 0};
      return;
    }
    bool rescan;
    store_.lookup(n, keys, found, &rescan);
    if (rescan && threads_.start().ok()) queue_.request_errand();
  }

  // Accepts all items or none. Sets *accepted to false if the queue is full.
  Status submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items, bool* accepted) noexcept {
    if (is_child()) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "the tier belongs to process %" PRId64 ", of which this is a child",
                           owner_);
    }
    // Loads may have larger items, because another process may have stored larger objects.
    const int64_t largest = work == TierWork::kStore ? limits_.max_object_bytes : kMaxFramePayloadBytes;
    KVC_TRY(check_tier_items(work, n, items, {limits_.max_job_items, largest}));
    KVC_TRY(threads_.start());
    return submit_job(&queue_, &store_, work, job, n, items, accepted);
  }

  int64_t poll(kvc_tier_completion* done, int64_t capacity) noexcept {
    return is_child() ? 0 : queue_.poll(done, capacity);
  }
  int64_t removed(kvc_tier_key* keys, int64_t capacity) noexcept {
    return is_child() ? 0 : store_.removed(keys, capacity);
  }
  int32_t descriptor() const noexcept { return queue_.descriptor(); }

  void cancel(uint64_t job) noexcept {
    if (is_child()) return;
    queue_.cancel(job, [this](const TierTask& task) {
      store_.count(task.work, {KVC_TIER_CANCELLED, 0, false});
      if (task.work == TierWork::kStore) store_.end_store(task.item->key);
    });
  }

  void stats(kvc_tier_stats* stats) const noexcept {
    if (is_child()) return;
    store_.fill(stats);
    stats->open_items = queue_.open_items();
  }

  // A child of fork() closes its copies of the descriptors. It does not free the memory, because threads that do not
  // exist in the child may have held the locks of the tier.
  static void close(DiskTier* tier) noexcept {
    if (tier->is_child()) {
      tier->queue_.forget_descriptor();
      tier->store_.forget_descriptors();
      for (const std::unique_ptr<ReadRing>& ring : tier->rings_) ring->forget_descriptor();
      return;
    }
    tier->queue_.stop();
    tier->threads_.join();
    delete tier;
  }

 private:
  // Opens a ring for each thread. The rings exist before the threads, so a child of fork() knows all descriptors.
  Status open_rings(const DiskTierOptions& options) {
    always_ring_ = options.reads == DiskReads::kTogether;
    for (int32_t i = 0; options.reads != DiskReads::kBlocking && i < options.threads; ++i) {
      std::unique_ptr<ReadRing> ring;
      if (const int error = ReadRing::open(&ring); error != 0) {
        rings_.clear();
        if (!always_ring_) return Status();
        return Status::error(KVC_ERROR_UNSUPPORTED, "io_uring: %s", std::strerror(-error));
      }
      rings_.push_back(std::move(ring));
    }
    return Status();
  }

  // Returns the ring of this thread; null if there is none.
  ReadRing* start_ring() noexcept {
    if (rings_.empty()) return nullptr;
    ReadRing* const ring = rings_[static_cast<size_t>(next_ring_++)].get();
    return ring->start() == 0 ? ring : nullptr;
  }

  void run() noexcept {
    ReadRing* const ring = start_ring();
    std::unique_ptr<Bounce> bounce;
    if (ring != nullptr) (void)make_bounce(bounce);
    TierTask task;
    for (;;) {
      const JobQueue::Next next = queue_.take(&task);
      if (next == JobQueue::Next::kStop) return;
      if (next == JobQueue::Next::kErrand) {
        scan();
        continue;
      }
      const bool fits = frame_bytes(task.item->bytes) <= Bounce::kBytes;
      if (task.work == TierWork::kLoad && ring != nullptr && bounce != nullptr && fits) {
        load_several(task, *bounce, *ring);
      } else {
        end(task, perform(task, bounce));
      }
    }
  }

  void end(const TierTask& task, const DiskStore::Outcome& outcome) noexcept {
    store_.count(task.work, outcome);
    if (task.work == TierWork::kStore) store_.end_store(task.item->key);
    queue_.complete(task, outcome.result, outcome.os_error);
  }

  // Executes a load, and other loads that wait with it, if they fit into the bounce buffer together.
  void load_several(const TierTask& first, Bounce& bounce, ReadRing& ring) noexcept {
    std::array<TierTask, ReadRing::kMostReads> tasks = {first};
    int64_t room = Bounce::kBytes - frame_bytes(first.item->bytes);
    const int more = queue_.take_loads(tasks.data() + 1, ReadRing::kMostReads - 1, static_cast<int>(rings_.size()),
                                       [&](const TierTask& task) {
                                         room -= frame_bytes(task.item->bytes);
                                         return room >= 0;
                                       });
    if (more == 0 && !always_ring_) return end(first, store_.load(*first.item, bounce));
    std::array<const kvc_tier_item*, ReadRing::kMostReads> items = {};
    for (int i = 0; i <= more; ++i) items[static_cast<size_t>(i)] = tasks[static_cast<size_t>(i)].item;
    const auto done = [&](int i, const DiskStore::Outcome& outcome) { end(tasks[static_cast<size_t>(i)], outcome); };
    store_.load_many(items.data(), more + 1, bounce, ring, std::ref(done));  // a reference, so that no memory is needed
  }

  void scan() noexcept {
    try {
      store_.scan();
    } catch (const std::bad_alloc&) {  // no memory for the names of objects to evict
    }
  }

  static bool make_bounce(std::unique_ptr<Bounce>& bounce) noexcept {
    try {
      if (!bounce) bounce = std::make_unique<Bounce>();
    } catch (const std::bad_alloc&) {
    }
    return bounce != nullptr;
  }

  DiskStore::Outcome perform(const TierTask& task, std::unique_ptr<Bounce>& bounce) noexcept {
    try {
      if (!make_bounce(bounce)) return {KVC_TIER_FAILED, ENOMEM, false};
      if (task.work == TierWork::kLoad) return store_.load(*task.item, *bounce);
      if (task.work == TierWork::kStore) return store_.store(*task.item, *bounce);
      return store_.remove(task.item->key);
    } catch (const std::bad_alloc&) {
      return {KVC_TIER_FAILED, ENOMEM, false};
    }
  }

  const int64_t owner_;
  const TierLimits limits_;
  JobQueue queue_;
  DiskStore store_;
  bool always_ring_ = false;                      // a load that waits alone is read by the ring too
  std::vector<std::unique_ptr<ReadRing>> rings_;  // [threads], or empty
  std::atomic<int> next_ring_{0};                 // of the next thread that starts
  TierThreads threads_;
};

Status check_options(const DiskTierOptions& options) {
  if (options.directory.empty()) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "directory is empty");
  if (options.capacity_bytes < kFrameBlockBytes) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity_bytes is %" PRId64 ", and must be at least %" PRId64,
                         options.capacity_bytes, kFrameBlockBytes);
  }
  if (options.threads < 1 || options.threads > 64) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "threads is %" PRId32 ", not in 1..64", options.threads);
  }
  if (options.max_items < 1 || options.max_items > (1 << 20)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "max_items is %" PRId32 ", not in 1..1048576", options.max_items);
  }
  return Status();
}

void fill_table(const DiskTierOptions& options, DiskTier* disk, kvc_tier* tier) {
  fill_tier_table(disk, tier);
  tier->name = "disk";
  tier->flags = disk->reads_together() ? KVC_TIER_READS_BY_IO_URING : 0;
  tier->max_object_bytes = largest_object(options);
  tier->max_job_items = options.max_items;
}

}  // namespace

Status open_disk_tier(const DiskTierOptions& options, kvc_tier* tier) {
  KVC_TRY(check_options(options));
  try {
    std::unique_ptr<DiskTier, void (*)(DiskTier*)> disk(new DiskTier(options), DiskTier::close);
    KVC_TRY(disk->open(options));
    fill_table(options, disk.release(), tier);
  } catch (const std::bad_alloc&) {
    return Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a disk tier of %" PRId32 " items", options.max_items);
  }
  return Status();
}

}  // namespace kvc

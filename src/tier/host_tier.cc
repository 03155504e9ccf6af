#include "tier/host_tier.h"

#include <cerrno>
#include <cinttypes>
#include <memory>
#include <new>
#include <utility>

#include "system/process.h"
#include "tier/host_store.h"
#include "tier/job_queue.h"
#include "tier/tier_items.h"
#include "tier/tier_table.h"

namespace kvc {
namespace {

class HostTier {
 public:
  static constexpr int32_t kMaxItems = 1024;

  HostTier() : owner_(process_id()), queue_(kMaxItems) {}

  Status open(int64_t capacity_bytes, std::shared_ptr<Context> pinned_for) {
    KVC_TRY(queue_.open());
    return store_.open(capacity_bytes, std::move(pinned_for));
  }
  int64_t largest_object() const noexcept { return store_.largest_object(); }
  HostStore* store() noexcept { return &store_; }

  // In a child of fork(), the tier does nothing, because threads of the parent may have held its locks.
  bool is_child() const noexcept { return process_id() != owner_; }

  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept {
    if (!is_child()) return store_.lookup(n, keys, found);
    for (int64_t i = 0; i < n; ++i) found[i] = {KVC_TIER_MISS, 0, 0};
  }

  Status submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items, bool* accepted) noexcept {
    if (is_child()) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "the tier belongs to process %" PRId64 ", of which this is a child",
                           owner_);
    }
    KVC_TRY(check_tier_items(work, n, items, {kMaxItems, largest_object(), KVC_TIER_ITEM_KEEP}));
    *accepted = queue_.submit(work, job, n, items);
    // Each call takes as many items from the queue as it has submitted, so no item stays there. If several threads
    // submit, a call may execute items of another thread.
    TierTask task;
    for (int64_t i = 0; *accepted && i < n; ++i) {
      queue_.take(&task);
      int32_t result = KVC_TIER_FAILED;
      try {
        result = store_.perform(task.work, *task.item);
      } catch (const std::bad_alloc&) {
        store_.count_failure(ENOMEM);
      }
      queue_.complete(task, result, result == KVC_TIER_FAILED ? ENOMEM : 0);
    }
    return Status();
  }

  int64_t poll(kvc_tier_completion* done, int64_t capacity) noexcept {
    return is_child() ? 0 : queue_.poll(done, capacity);
  }
  int64_t removed(kvc_tier_key* keys, int64_t capacity) noexcept {
    return is_child() ? 0 : store_.removed(keys, capacity);
  }
  int32_t descriptor() const noexcept { return queue_.descriptor(); }
  void cancel(uint64_t) noexcept {}  // submit has already executed every item

  void stats(kvc_tier_stats* stats) const noexcept {
    if (is_child()) return;
    store_.fill(stats);
    stats->open_items = queue_.open_items();
  }

  static void close(HostTier* tier) noexcept {
    if (tier->is_child()) {
      tier->queue_.forget_descriptor();
      return;
    }
    delete tier;
  }

 private:
  const int64_t owner_;
  JobQueue queue_;
  HostStore store_;
};

}  // namespace

HostStore* host_tier_store(void* self) noexcept { return static_cast<HostTier*>(self)->store(); }

Status open_host_tier(int64_t capacity_bytes, kvc_tier* tier, std::shared_ptr<Context> pinned_for) {
  const int64_t least = pinned_for ? HostStore::kPinnedBlockBytes : HostStore::kBlockBytes;
  if (capacity_bytes < least || capacity_bytes > HostStore::kMaxBytes) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "capacity_bytes is %" PRId64 ", not in %" PRId64 "..%" PRId64,
                         capacity_bytes, least, HostStore::kMaxBytes);
  }
  try {
    std::unique_ptr<HostTier, void (*)(HostTier*)> host(new HostTier, HostTier::close);
    KVC_TRY(host->open(capacity_bytes, std::move(pinned_for)));
    tier->name = "host";
    tier->flags = KVC_TIER_KEEPS;
    tier->max_object_bytes = host->largest_object();
    tier->max_job_items = HostTier::kMaxItems;
    fill_tier_table(host.release(), tier);
  } catch (const std::bad_alloc&) {
    return Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory for a host tier of %" PRId64 " bytes", capacity_bytes);
  }
  return Status();
}

}  // namespace kvc

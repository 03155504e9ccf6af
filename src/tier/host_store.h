// HostStore: objects in memory of the process, with a limit in bytes. The least recently used objects are evicted.
//
// The memory is one range of addresses, divided into blocks. An object is a chain of blocks, so any free blocks can
// hold it. A block takes physical memory when it is first used.
//   blocks of stored objects + of open stores + of dropped objects + free blocks = all blocks
// Bytes are copied outside the lock. An object that is being loaded keeps its blocks until the end of the load, even if
// it is replaced or removed. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>

#include "base/lazy_array.h"
#include "base/mutex.h"
#include "base/status.h"
#include "tier/host_tier.h"
#include "tier/removed_keys.h"
#include "tier/tier_items.h"
#include "tier/tier_key.h"
#include "tier/transfer_meter.h"

namespace kvc {

class HostStore {
 public:
  static constexpr int64_t kBlockBytes = kHostBlockBytes;
  static constexpr int64_t kMaxBytes = INT32_MAX * kBlockBytes;

  HostStore() = default;
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Reserves addresses for the whole blocks that fit in capacity_bytes. May return OUT_OF_MEMORY. Call it once, before
  // any other method.
  Status open(int64_t capacity_bytes);
  int64_t largest_object() const noexcept { return num_blocks_ * kBlockBytes; }

  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept;
  // Executes an item. Returns KVC_TIER_OK, MISS, or RETRY if open loads and kept objects leave too few blocks.
  int32_t perform(TierWork work, const kvc_tier_item& item);
  void count_failure(int32_t os_error) noexcept;
  void fill(kvc_tier_stats* stats) const noexcept;
  int64_t room_to_keep() const noexcept;  // as host_tier_room_to_keep
  int64_t removed(kvc_tier_key* keys, int64_t capacity) noexcept;

 private:
  struct Object {
    kvc_tier_key key = {};
    int64_t bytes = 0;
    int32_t first = -1;    // first block; -1 = none
    int32_t loads = 0;     // open loads of this object
    bool kept = false;     // must not be evicted
    bool dropped = false;  // must be freed after its last open load
  };
  using Objects = std::list<Object>;

  static int64_t blocks_of(int64_t bytes) noexcept { return (bytes + kBlockBytes - 1) / kBlockBytes; }
  int32_t store(const kvc_tier_item& item);
  int32_t load(const kvc_tier_item& item);
  bool take_blocks(int64_t count, int32_t* first) noexcept KVC_REQUIRES(mutex_);
  void free_blocks(int32_t first) noexcept KVC_REQUIRES(mutex_);
  Objects& list_of(const Object& object) noexcept KVC_REQUIRES(mutex_) { return object.kept ? kept_ : objects_; }
  void drop(Objects::iterator object) noexcept KVC_REQUIRES(mutex_);
  // Frees an object that the index does not name: now, or after its last open load.
  void retire(Objects::iterator object) noexcept KVC_REQUIRES(mutex_);
  // Copies between the buffers of an item and a chain of blocks. No other code may change the chain at the same time.
  void copy(const kvc_tier_item& item, int32_t block, bool into_blocks) const noexcept;

  uint8_t* memory_ = nullptr;
  int64_t num_blocks_ = 0;
  LazyArray<int32_t> next_;  // [num_blocks]: the next block of an object or of the free chain; -1 = none

  mutable Mutex mutex_;
  Objects objects_ KVC_GUARDED_BY(mutex_);  // the least recently used object first
  Objects kept_ KVC_GUARDED_BY(mutex_);     // objects that must not be evicted
  Objects dropped_ KVC_GUARDED_BY(mutex_);  // removed objects with open loads
  std::unordered_map<kvc_tier_key, Objects::iterator, TierKeyHash, TierKeyEqual> index_ KVC_GUARDED_BY(mutex_);
  RemovedKeys removed_ KVC_GUARDED_BY(mutex_);
  int32_t free_ KVC_GUARDED_BY(mutex_) = -1;
  int64_t num_free_ KVC_GUARDED_BY(mutex_) = 0;     // blocks of the free chain, and blocks from fresh_ on
  int64_t kept_blocks_ KVC_GUARDED_BY(mutex_) = 0;  // blocks of objects that must not be evicted
  int32_t fresh_ KVC_GUARDED_BY(mutex_) = 0;        // first block that was never used
  TransferMeter load_meter_ KVC_GUARDED_BY(mutex_), store_meter_ KVC_GUARDED_BY(mutex_);
  kvc_tier_stats counts_ KVC_GUARDED_BY(mutex_) = {};
};

}  // namespace kvc

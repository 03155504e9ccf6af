// HostStore: objects in memory of the process, with a limit in bytes. The least recently used objects are evicted.
//
// The memory is divided into blocks. It is one range of addresses, in which a block takes physical memory when it is
// first used. Or it is pinned memory of a device, in chunks that are allocated when the store is opened. An object is a
// chain of blocks, so any free blocks can hold it. Blocks are taken in an order in which objects of one size lie in
// consecutive blocks.
//   blocks of stored objects + of open stores + of dropped objects + free blocks = all blocks
// Bytes are copied outside the lock. An object that is being loaded keeps its blocks until the end of the load, even if
// it is replaced or removed. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/lazy_array.h"
#include "base/mutex.h"
#include "base/status.h"
#include "context/context.h"
#include "tier/object_memory.h"
#include "tier/removed_keys.h"
#include "tier/tier_items.h"
#include "tier/tier_key.h"
#include "tier/transfer_meter.h"

namespace kvc {

class HostStore {
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

 public:
  static constexpr int64_t kBlockBytes = 4096;
  // A copy by a device of less than this takes longer to start than to transfer.
  static constexpr int64_t kPinnedBlockBytes = 65536;
  static constexpr int64_t kMaxBytes = INT32_MAX * kBlockBytes;

  HostStore() = default;
  ~HostStore();
  HostStore(const HostStore&) = delete;
  HostStore& operator=(const HostStore&) = delete;

  // Reserves addresses for the whole blocks that fit in capacity_bytes, or allocates them as pinned memory of a context
  // (pinned_for, nullable). Errors: OUT_OF_MEMORY, or those of PinnedMemory. Call it once, before any other method.
  Status open(int64_t capacity_bytes, std::shared_ptr<Context> pinned_for);
  int64_t largest_object() const noexcept { return num_blocks_ * block_bytes_; }
  bool pinned() const noexcept { return !pinned_.empty(); }

  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept;
  // Executes an item. Returns KVC_TIER_OK, MISS, or RETRY if open loads and kept objects leave too few blocks.
  int32_t perform(TierWork work, const kvc_tier_item& item);
  void count_failure(int32_t os_error) noexcept;
  void fill(kvc_tier_stats* stats) const noexcept;
  int64_t removed(kvc_tier_key* keys, int64_t capacity) noexcept;
  // Returns the bytes that new objects with KVC_TIER_ITEM_KEEP can take, if they evict all other objects. An object
  // takes whole blocks (rounded).
  int64_t room_to_keep() const noexcept;
  int64_t rounded(int64_t bytes) const noexcept { return blocks_of(bytes) * block_bytes_; }

  // The memory of an object, between begin_store and end_store, or between begin_load and end_load.
  class Place {
   public:
    const ObjectMemory& memory() const noexcept { return memory_; }

   private:
    friend class HostStore;
    Objects made_;                // of a store: the object, which no list has yet
    Objects::iterator object_{};  // of a load
    TransferMeter::Item transfer_;
    ObjectMemory memory_;
  };

  // Takes memory for a new object, and evicts what it must. Returns KVC_TIER_OK, or RETRY if there is no room. The
  // caller then fills the memory, and calls end_store. Throws std::bad_alloc.
  int32_t begin_store(const kvc_tier_key& key, int64_t bytes, bool kept, Place* place);
  // Makes the object findable, or with `filled` false, frees its memory. Throws std::bad_alloc, after it has freed the
  // memory.
  void end_store(Place* place, bool filled);
  // Gives the memory of an object for reading, until end_load. Returns KVC_TIER_OK or MISS. Throws std::bad_alloc.
  int32_t begin_load(const kvc_tier_key& key, int64_t bytes, Place* place);
  void end_load(Place* place, bool used) noexcept;

 private:
  int64_t blocks_of(int64_t bytes) const noexcept { return (bytes + block_bytes_ - 1) / block_bytes_; }
  uint8_t* address(int32_t block) const noexcept {
    return chunks_[static_cast<size_t>(block / chunk_blocks_)] + block % chunk_blocks_ * block_bytes_;
  }
  ObjectMemory memory_of(const Object& object) const;
  int32_t store(const kvc_tier_item& item);
  int32_t load(const kvc_tier_item& item);
  bool take_blocks(int64_t count, int32_t* first) noexcept KVC_REQUIRES(mutex_);
  void free_blocks(int32_t first) noexcept KVC_REQUIRES(mutex_);
  Objects& list_of(const Object& object) noexcept KVC_REQUIRES(mutex_) { return object.kept ? kept_ : objects_; }
  void drop(Objects::iterator object) noexcept KVC_REQUIRES(mutex_);
  // Frees an object that the index does not name: now, or after its last open load.
  void retire(Objects::iterator object) noexcept KVC_REQUIRES(mutex_);

  int64_t block_bytes_ = kBlockBytes;
  int64_t num_blocks_ = 0;
  int64_t chunk_blocks_ = 0;                           // number of blocks of each chunk; the last one may have fewer
  std::vector<uint8_t*> chunks_;                       // addresses
  std::vector<std::unique_ptr<PinnedMemory>> pinned_;  // [chunks], or empty: the only chunk is mapped memory
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

// DiskStore: the objects of one directory and their index. It executes the items of a disk tier's jobs.
//
//   After the directory was scanned and make_room has returned, index_.stored_bytes() + reserved_bytes_ <=
//   capacity_bytes. Files of other processes that no scan has found yet are not counted.
//
// Locks: a stripe is a lock for a subset of the keys. It is held while the name of a file and the entry of its object
// change together. mutex_ guards the index, and is held only for short times and never during I/O. A stripe is locked
// before mutex_. Thread safety: any thread. lookup, begin_store, end_store, count, fill and removed do no I/O. The
// other functions block on I/O.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "system/read_ring.h"
#include "tier/disk_tier.h"
#include "tier/object_folder.h"
#include "tier/object_index.h"
#include "tier/tier_items.h"
#include "tier/transfer_meter.h"

namespace kvc {

class DiskStore {
 public:
  explicit DiskStore(const DiskTierOptions& options) noexcept;

  // Opens the directory, and scans folders until scan_at_open objects were found.
  Status open(const std::string& directory);

  // Whether all folders of the directory were scanned at least once.
  bool scanned() const noexcept { return folders_scanned_.load(std::memory_order_acquire) == ObjectIndex::kFolders; }
  // Never blocks on I/O. Sets *rescan to whether the caller must request a rescan.
  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, bool* rescan) noexcept;

  // Between begin_store and end_store, a lookup of the key returns PENDING if there is no object.
  void begin_store(const kvc_tier_key& key);  // throws std::bad_alloc
  void end_store(const kvc_tier_key& key) noexcept;

  using Outcome = ObjectFolder::Outcome;
  Outcome store(const kvc_tier_item& item, Bounce& bounce);
  Outcome load(const kvc_tier_item& item, Bounce& bounce);
  // Loads n <= ReadRing::kMostReads objects, whose files are in flight together. Their frames must fit into the bounce
  // buffer together. Calls done(i, outcome) when item i is done; `done` must not throw.
  void load_many(const kvc_tier_item* const* items, int n, Bounce& bounce, ReadRing& ring,
                 const std::function<void(int, const Outcome&)>& done) noexcept;
  Outcome remove(const kvc_tier_key& key);
  // Scans the folders that were never scanned. If there are none, scans the folders that have changed. If another
  // thread is scanning, returns at once.
  void scan();
  void count(TierWork work, const Outcome& outcome) noexcept;
  void fill(kvc_tier_stats* stats) const noexcept;
  int64_t removed(kvc_tier_key* keys, int64_t capacity) noexcept;
  void forget_descriptors() noexcept;  // for a child of fork()

 private:
  struct Loading {
    int64_t stamp_ns = 0;
    int64_t file_stamp_ns = 0;  // the stamp that the file has after the load
    TransferMeter::Item transfer;
  };
  Loading begin_load(const kvc_tier_item& item) noexcept;
  // The stamp that the load writes to the file; 0 = none.
  int64_t new_stamp(const Loading& loading) const noexcept {
    return loading.file_stamp_ns == loading.stamp_ns && !folder_->read_only() ? loading.stamp_ns : 0;
  }
  Outcome end_load(const kvc_tier_item& item, const Loading& loading, const Outcome& outcome);
  void scan_folder(int folder) noexcept;
  void scan_changed_folders() noexcept;
  // Adds the object of a file to the index, if the file exists.
  void add_found(const kvc_tier_key& key, int64_t payload_bytes);
  // Reserves bytes for a file. Returns false if they do not fit beside the files that are being written. After true,
  // the caller calls make_room before it writes the file.
  bool reserve(int64_t bytes) noexcept;
  // Evicts objects until stored and reserved bytes fit in the capacity. recycled: nullable. If an evicted file has
  // wanted_bytes, *recycled becomes its temporary name.
  void make_room(int64_t wanted_bytes, std::string* recycled);
  // Removes the object with the oldest stamp. With look_for_uses, the object stays if its file has a later stamp,
  // because another process used it. Then its entry gets the stamp of the file.
  void evict_oldest(bool look_for_uses, int64_t wanted_bytes, std::string* recycled);
  // Call it after a load found no object, or a damaged file. Erases the object from the index, and deletes a damaged
  // file.
  void forget(const kvc_tier_item& item, bool damaged);
  // *reserved: bytes that the caller has reserved for the file. While the index counts the file, they are not reserved
  // too. The caller frees what is left of them.
  Outcome write(const kvc_tier_item& item, int64_t stamp_ns, std::string name, Bounce& bounce, int64_t* reserved);
  Outcome publish(const kvc_tier_item& item, const std::string& name, int64_t stamp_ns, int64_t* reserved);
  int64_t next_stamp() noexcept KVC_REQUIRES(mutex_);
  Mutex& stripe(const kvc_tier_key& key) noexcept { return stripes_[key.bytes[1] % stripes_.size()]; }

  FileOps& ops_;
  int64_t (*const wall_ns_)();
  const int64_t capacity_bytes_, scan_at_open_, rescan_ns_;
  const DiskSync sync_;
  std::unique_ptr<ObjectFolder> folder_;
  std::array<Mutex, 16> stripes_;

  mutable Mutex mutex_;
  ObjectIndex index_ KVC_GUARDED_BY(mutex_);
  std::unordered_map<kvc_tier_key, int32_t, TierKeyHash, TierKeyEqual> storing_ KVC_GUARDED_BY(mutex_);
  int64_t reserved_bytes_ KVC_GUARDED_BY(mutex_) = 0;
  int64_t latest_stamp_ns_ KVC_GUARDED_BY(mutex_) = 0;  // the next stamp is higher, even if the clock was set back
  TransferMeter load_meter_ KVC_GUARDED_BY(mutex_), store_meter_ KVC_GUARDED_BY(mutex_);
  kvc_tier_stats counts_ KVC_GUARDED_BY(mutex_) = {};
  int64_t next_rescan_ns_ KVC_GUARDED_BY(mutex_) = 0;

  // State of the scan. Folders [0, folders_scanned_) were scanned.
  std::atomic<int> folders_scanned_{0};
  std::atomic<bool> scanning_{false};
  std::array<int64_t, ObjectIndex::kFolders> folder_stamps_ns_;  // change time at the scan; -1: scan it again
};

}  // namespace kvc

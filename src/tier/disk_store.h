// DiskStore: the objects of one directory and their index. It carries out the items of a disk tier.
//
//   index_.stored_bytes() + reserved_bytes_ <= capacity_bytes after the directory was scanned, unless other processes
//   store objects that are not in the index
//
// Locks: a stripe (by key) is held while the name of a file and the entry of its object change together; mutex_ guards
// the index and is held for short times only, never during I/O. A stripe is taken before mutex_. Thread safety: any
// thread. Functions that take a Bounce block on I/O.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "tier/disk_tier.h"
#include "tier/object_folder.h"
#include "tier/object_index.h"
#include "tier/tier_items.h"
#include "tier/transfer_meter.h"

namespace kvc {

class DiskStore {
 public:
  explicit DiskStore(const DiskTierOptions& options) noexcept;

  // Opens the directory and scans the first objects.
  Status open(const std::string& directory);

  // Whether the directory was scanned to its end once.
  bool scanned() const noexcept { return folders_scanned_.load(std::memory_order_acquire) == ObjectIndex::kFolders; }
  // Never blocks. *rescan becomes true if a rescan is due.
  void lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, bool* rescan) noexcept;

  // While a store is open, lookups of its key are PENDING.
  void begin_store(const kvc_tier_key& key);  // throws std::bad_alloc
  void end_store(const kvc_tier_key& key) noexcept;

  using Outcome = ObjectFolder::Outcome;
  Outcome store(const kvc_tier_item& item, Bounce& bounce);
  Outcome load(const kvc_tier_item& item, Bounce& bounce);
  Outcome remove(const kvc_tier_key& key);
  // Scans the folders that were not scanned yet. If there are none, scans those that have changed. If another thread is
  // scanning, returns at once.
  void scan();
  void count(TierWork work, const Outcome& outcome) noexcept;
  void fill(kvc_tier_stats* stats) const noexcept;
  void forget_descriptors() noexcept;  // in a child of fork()

 private:
  void scan_folder(int folder) noexcept;
  void scan_changed_folders() noexcept;
  // Adds the object of a file to the index, if the file is there.
  void add_found(const kvc_tier_key& key, int64_t payload_bytes);
  // Evicts until a file of so many bytes fits, and reserves them. False if that is impossible now. recycled: nullable;
  // out: a file of this size that was evicted, if there was one.
  bool reserve(int64_t bytes, std::string* recycled);
  bool fits(int64_t bytes) const noexcept KVC_REQUIRES(mutex_);
  // Removes the object with the oldest stamp. With look_for_uses, an object that another process has used since then is
  // not removed: it gets that stamp.
  void evict_oldest(bool look_for_uses, int64_t wanted_bytes, std::string* recycled);
  // The object was not in its file. Erases it from the index, and deletes the file if it is damaged.
  void forget(const kvc_tier_item& item, bool damaged);
  Outcome write(const kvc_tier_item& item, int64_t stamp_ns, std::string name, Bounce& bounce);
  Outcome publish(const kvc_tier_item& item, const std::string& name, int64_t stamp_ns);
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
  int64_t latest_stamp_ns_ KVC_GUARDED_BY(mutex_) = 0;  // stamps only grow, also if the clock goes back
  TransferMeter load_meter_ KVC_GUARDED_BY(mutex_), store_meter_ KVC_GUARDED_BY(mutex_);
  kvc_tier_stats counts_ KVC_GUARDED_BY(mutex_) = {};
  int64_t next_rescan_ns_ KVC_GUARDED_BY(mutex_) = 0;

  // Of the scan. Folders [0, folders_scanned_) were scanned.
  std::atomic<int> folders_scanned_{0};
  std::atomic<bool> scanning_{false};
  std::array<int64_t, ObjectIndex::kFolders> folder_stamps_ns_;  // change time when it was scanned; -1: scan it again
};

}  // namespace kvc

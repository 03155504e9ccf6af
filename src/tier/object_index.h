// ObjectIndex: a list in memory of the objects of a directory, ordered by their last use.
//
// The index may differ from the directory, because other processes change the directory. Only a load shows whether an
// object exists.
//   stored_bytes() = the sum of frame_bytes(payload_bytes) over all entries
//   find(key)->payload_bytes is the size in the name of the file
// A stamp is the time of an object's last use. The entry with the lowest stamp is the least recently used.
//
// Pure. Thread safety: none; the caller locks. Functions that insert may throw std::bad_alloc; then they have changed
// nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <unordered_map>
#include <vector>

#include "tier/object_frame.h"
#include "tier/removed_keys.h"
#include "tier/tier_key.h"

namespace kvc {

class ObjectIndex {
 public:
  static constexpr int kFolders = 256;  // the folder of a key is its first byte

  struct Entry {
    int64_t payload_bytes = 0;
    int64_t stamp_ns = 0;       // time of the last use
    int64_t file_stamp_ns = 0;  // the stamp that the file has; a load changes it at most once a second
    uint64_t listing = 0;       // number of the last listing before or in which the file was seen or put
  };

  const Entry* find(const kvc_tier_key& key) const noexcept;
  // Returns the key with the lowest stamp, or null.
  const kvc_tier_key* oldest() const noexcept;

  // Inserts or replaces an entry.
  void put(const kvc_tier_key& key, int64_t payload_bytes, int64_t stamp_ns);
  // Records a use at time stamp_ns. file_stamp_ns: the stamp that the file has now. Does nothing if the key has no
  // entry.
  void touch(const kvc_tier_key& key, int64_t stamp_ns, int64_t file_stamp_ns);
  bool erase(const kvc_tier_key& key) noexcept;

  // For a listing of a folder, call begin_listing, then `seen` for each file that has an entry, then end_listing.
  // end_listing erases the folder's entries that were neither seen nor put since begin_listing, because their files are
  // gone.
  void begin_listing() noexcept { ++listing_; }
  void seen(const kvc_tier_key& key) noexcept;
  void end_listing(int folder) noexcept;

  RemovedKeys& removed() noexcept { return removed_; }
  int64_t objects() const noexcept { return static_cast<int64_t>(order_.size()); }
  int64_t stored_bytes() const noexcept { return stored_bytes_; }
  int64_t latest_stamp_ns() const noexcept { return latest_stamp_ns_; }

 private:
  struct Place {
    int64_t stamp_ns;
    kvc_tier_key key;
    bool operator<(const Place& other) const noexcept {
      if (stamp_ns != other.stamp_ns) return stamp_ns < other.stamp_ns;
      return std::memcmp(key.bytes, other.key.bytes, sizeof key.bytes) < 0;
    }
  };
  using Folder = std::unordered_map<kvc_tier_key, Entry, TierKeyHash, TierKeyEqual>;

  void move_to(const kvc_tier_key& key, Entry& entry, int64_t stamp_ns) noexcept;

  std::array<Folder, kFolders> folders_;
  std::set<Place> order_;  // one for each entry
  RemovedKeys removed_;    // keys of erased entries
  int64_t stored_bytes_ = 0;
  int64_t latest_stamp_ns_ = 0;
  uint64_t listing_ = 0;
};

}  // namespace kvc

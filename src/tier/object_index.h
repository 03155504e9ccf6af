// ObjectIndex: which objects a directory holds, in memory, ordered by their last use.
//
// The index may differ from the directory, because other processes change it. It is a hint: a load finds out.
//   stored_bytes() = the sum of frame_bytes(payload_bytes) over all entries
//   find(key).payload_bytes is the size in the name of the file
// Stamps order the entries: the entry with the lowest stamp was unused for the longest time.
//
// Pure. Thread safety: none; the caller has a lock. Functions that insert may throw std::bad_alloc, and change nothing
// then.
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
#include "tier/tier_key.h"

namespace kvc {

class ObjectIndex {
 public:
  static constexpr int kFolders = 256;  // by the first byte of a key

  struct Entry {
    int64_t payload_bytes = 0;
    int64_t stamp_ns = 0;       // of the last use
    int64_t file_stamp_ns = 0;  // as the file has it. It is written at most once a second
    uint64_t listing = 0;       // the latest listing of the folder that has the file
  };

  const Entry* find(const kvc_tier_key& key) const noexcept;
  // The entry of the lowest stamp, or null.
  const kvc_tier_key* oldest() const noexcept;

  // Inserts an entry, or replaces it.
  void put(const kvc_tier_key& key, int64_t payload_bytes, int64_t stamp_ns);
  // Records a use at this time. file_stamp_ns: the stamp of the file now. Does nothing if there is no such entry.
  void touch(const kvc_tier_key& key, int64_t stamp_ns, int64_t file_stamp_ns);
  bool erase(const kvc_tier_key& key) noexcept;

  // A listing of a folder: begin, `seen` for each file that has an entry, end. Entries that were neither seen nor put
  // in the meantime are erased, because their files are gone.
  void begin_listing() noexcept { ++listing_; }
  void seen(const kvc_tier_key& key) noexcept;
  void end_listing(int folder) noexcept;

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
  int64_t stored_bytes_ = 0;
  int64_t latest_stamp_ns_ = 0;
  uint64_t listing_ = 0;
};

}  // namespace kvc

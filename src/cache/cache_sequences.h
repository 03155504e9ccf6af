// CacheSequences: the calls on sequences: add, remove, fork, truncate, commit and checkpoint, the settings of
// sequences, and queries of lengths and pages. In a cache with KVC_STORAGE_NONE, take_copies moves the waiting copies
// to the caller.
#pragma once

#include <span>

#include "cache/cache_core.h"
#include "cache/cache_tiers.h"

namespace kvc {

class CacheSequences {
 public:
  CacheSequences(CacheCore* core, CacheTiers* tiers) : core_(*core), tiers_(*tiers) {}

  Status add(std::span<kvc_seq> out);
  Status remove(std::span<const kvc_seq> ids);
  // positions: the length of each child. -1, or an empty array, means the length of the parent.
  Status fork(std::span<const kvc_seq> parents, std::span<const int64_t> positions, std::span<kvc_seq> children,
              void* stream);
  Status truncate(std::span<const kvc_seq> ids, std::span<const int64_t> lengths);
  Status commit(std::span<const kvc_seq> ids, std::span<const int32_t> leaves, void* stream);
  Status checkpoint(std::span<const kvc_seq> ids);
  // Removes all sequences, and empties the prefix index.
  Status clear();
  Status take_copies(std::span<kvc_copy> out, int64_t* count);

  Status set_rope(std::span<const kvc_seq> ids, int32_t set);
  Status set_streaming(std::span<const kvc_seq> ids, std::span<const int64_t> sinks, std::span<const int64_t> windows,
                       uint32_t flags);
  Status streaming(std::span<const kvc_seq> ids, std::span<int64_t> sinks, std::span<int64_t> windows);

  Status lengths(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status encoder_lengths(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status tree_nodes(std::span<const kvc_seq> ids, std::span<int32_t> out);
  Status pages(kvc_seq id, int32_t group, std::span<int32_t> out, int64_t* count);
  Status nearest_position(kvc_seq id, int64_t position, int64_t* before, int64_t* after);
  Status max_append(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status exclusive_pages(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out);

 private:
  Status check_exist(std::span<const kvc_seq> ids) const KVC_REQUIRES(core_.mutex);

  CacheCore& core_;
  CacheTiers& tiers_;
};

}  // namespace kvc

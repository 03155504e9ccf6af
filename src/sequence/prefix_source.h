// Interfaces of the prefix index that the sequence store uses: the pages of a prefix, and eviction. Calls are made
// under the cache's lock.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace kvc {

// Frees pages of a group that only the prefix index refers to.
class PageEvictor {
 public:
  virtual ~PageEvictor() = default;
  // Frees `pages` pages. At least this number of pages must be idle (RefPool).
  virtual void evict(int32_t group, int64_t pages) noexcept = 0;
};

// The pages of a prefix that a new sequence will share.
class PrefixSource {
 public:
  virtual ~PrefixSource() = default;
  // The page of list entry `index`, or -1. For a state group, any index gives the page of the state after the prefix.
  virtual int32_t at(int32_t group, int64_t index) const noexcept = 0;
  // Reads entries from `begin` on. The group must hold tokens.
  virtual void read(int32_t group, int64_t begin, std::span<int32_t> pages) const noexcept {
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = at(group, begin + static_cast<int64_t>(i));
  }
};

}  // namespace kvc

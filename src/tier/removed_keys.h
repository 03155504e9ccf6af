// RemovedKeys: the keys of objects that a tier has lost, until the caller of the tier takes them (kvc_tier::removed).
// It records keys from the first call of `take` on, and kMost of them at most.
//
// Thread safety: none; the caller locks. Allocates in the first call of `take`.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>

#include "base/lazy_array.h"
#include "kvcache_tier.h"

namespace kvc {

class RemovedKeys {
 public:
  static constexpr int64_t kMost = int64_t{1} << 16;

  void add(const kvc_tier_key& key) noexcept {
    if (!on_) return;
    overflowed_ = overflowed_ || size_ == keys_.size();
    if (!overflowed_) keys_[size_++] = key;
  }

  // As kvc_tier::removed.
  int64_t take(kvc_tier_key* keys, int64_t capacity) noexcept {
    if (!on_) {
      on_ = true;
      try {
        keys_ = LazyArray<kvc_tier_key>(kMost);
      } catch (const std::bad_alloc&) {  // then each key is one too many
      }
    }
    if (overflowed_) {
      overflowed_ = false;
      size_ = 0;
      return -1;
    }
    const int64_t count = std::min(size_, std::max<int64_t>(0, capacity));
    size_ -= count;
    std::copy_n(keys_.data() + size_, count, keys);  // in any order: the caller looks up each of them
    return count;
  }

 private:
  bool on_ = false, overflowed_ = false;
  LazyArray<kvc_tier_key> keys_;  // [kMost] after the first `take`
  int64_t size_ = 0;
};

}  // namespace kvc

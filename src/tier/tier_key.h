// Hash, comparison and text of a tier's keys.
//
// Pure. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kvcache_tier.h"

namespace kvc {

inline bool operator==(const kvc_tier_key& a, const kvc_tier_key& b) noexcept {
  return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

// Keys are the output of a hash, so any 8 bytes of a key are a hash too. The first byte is not used, because it is
// equal for all keys of a folder.
struct TierKeyHash {
  size_t operator()(const kvc_tier_key& key) const noexcept {
    uint64_t value;
    std::memcpy(&value, key.bytes + 8, sizeof value);
    return static_cast<size_t>(value);
  }
};

struct TierKeyEqual {
  bool operator()(const kvc_tier_key& a, const kvc_tier_key& b) const noexcept { return a == b; }
};

}  // namespace kvc

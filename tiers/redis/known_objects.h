// KnownObjects: remembers for recently used keys whether an object exists, and its size. So lookups are answered from
// memory.
//
// An answer is used for `keep_ns`, unless it is dropped earlier. A key without an answer is PENDING, and waits until a
// thread of the tier searches it on the server. A key that is being stored is PENDING too. At most kMaxSearches keys
// wait or are searched at a time, and a lookup of a further key returns RETRY. There are two generations of answers, of
// up to kGeneration answers each. When the young generation is full, it replaces the old one.
//
// The class has a lock, but no clock: time is an argument. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "tier/tier_key.h"

namespace kvc::redis {

class KnownObjects {
 public:
  static constexpr size_t kGeneration = 1 << 16;
  static constexpr size_t kMaxSearches = 1 << 15;

  explicit KnownObjects(int64_t keep_ns) : keep_ns_(keep_ns) {}

  // Answers lookups. Returns whether keys wait to be searched. Throws std::bad_alloc.
  bool lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, int64_t now_ns);
  // Removes up to `most` waiting keys, and returns them. The caller searches them, and calls `searched` for each.
  std::vector<kvc_tier_key> take(size_t most);
  // bytes: the size of the object; -1 = no object was found.
  void searched(const kvc_tier_key& key, int64_t bytes, int64_t now_ns);
  bool waiting();

  // The key is PENDING from begin_store until end_store. begin_store may throw std::bad_alloc.
  void begin_store(const kvc_tier_key& key);
  void end_store(const kvc_tier_key& key) noexcept;
  // Records the result of a store, load or remove. bytes: the size of the object; -1 = it does not exist.
  void learned(const kvc_tier_key& key, int64_t bytes, int64_t now_ns) noexcept;
  void forget(const kvc_tier_key& key) noexcept;

 private:
  struct Answer {
    int64_t bytes = -1;
    int64_t until_ns = 0;
  };
  using Answers = std::unordered_map<kvc_tier_key, Answer, TierKeyHash, TierKeyEqual>;
  void remember(const kvc_tier_key& key, int64_t bytes, int64_t now_ns) noexcept KVC_REQUIRES(mutex_);
  const Answer* find(const kvc_tier_key& key, int64_t now_ns) const KVC_REQUIRES(mutex_);

  const int64_t keep_ns_;
  Mutex mutex_;
  Answers young_ KVC_GUARDED_BY(mutex_), old_ KVC_GUARDED_BY(mutex_);
  // Keys that wait to be searched (they are also in waiting_), and keys that are being searched.
  std::unordered_set<kvc_tier_key, TierKeyHash, TierKeyEqual> searching_ KVC_GUARDED_BY(mutex_);
  std::deque<kvc_tier_key> waiting_ KVC_GUARDED_BY(mutex_);
  // For each key that is being stored, the number of these stores.
  std::unordered_map<kvc_tier_key, int32_t, TierKeyHash, TierKeyEqual> storing_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc::redis

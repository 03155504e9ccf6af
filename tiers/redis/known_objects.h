// KnownObjects: what a tier has found out about its objects, so that lookups answer from memory.
//
// An answer is used again for `keep_ns`. A key without an answer is PENDING, and waits to be searched by a thread of
// the tier. A key that is being stored is PENDING too. Bounded: kMaxSearches keys that are searched, and 2 *
// kGeneration answers. When a generation of answers is full, the one before it is forgotten.
//
// Pure but for its lock: time is an argument. Thread safety: any thread.
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

  // Answers lookups. Returns whether keys wait to be searched. It throws std::bad_alloc.
  bool lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, int64_t now_ns);
  // Takes at most `most` keys that wait. Each of them is then given to `searched`.
  std::vector<kvc_tier_key> take(size_t most);
  // bytes: size of the object; -1 = there is none.
  void searched(const kvc_tier_key& key, int64_t bytes, int64_t now_ns);
  bool waiting();

  void begin_store(const kvc_tier_key& key);  // throws std::bad_alloc
  // The object was stored with this size, or removed, or is not there.
  void end_store(const kvc_tier_key& key) noexcept;
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
  std::unordered_set<kvc_tier_key, TierKeyHash, TierKeyEqual> searching_ KVC_GUARDED_BY(mutex_);  // waiting ones too
  std::deque<kvc_tier_key> waiting_ KVC_GUARDED_BY(mutex_);
  std::unordered_map<kvc_tier_key, int32_t, TierKeyHash, TierKeyEqual> storing_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc::redis

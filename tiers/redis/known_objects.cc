#include "known_objects.h"

#include <algorithm>
#include <new>

namespace kvc::redis {

const KnownObjects::Answer* KnownObjects::find(const kvc_tier_key& key, int64_t now_ns) const {
  for (const Answers* answers : {&young_, &old_}) {
    const auto found = answers->find(key);
    if (found != answers->end()) return now_ns < found->second.until_ns ? &found->second : nullptr;
  }
  return nullptr;
}

bool KnownObjects::lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, int64_t now_ns) {
  MutexLock lock(mutex_);
  for (int64_t i = 0; i < n; ++i) {
    if (storing_.count(keys[i]) > 0) {
      found[i] = {KVC_TIER_PENDING, 0, 0};
    } else if (const Answer* answer = find(keys[i], now_ns)) {
      found[i] =
          answer->bytes >= 0 ? kvc_tier_found{KVC_TIER_HIT, 0, answer->bytes} : kvc_tier_found{KVC_TIER_MISS, 0, 0};
    } else if (searching_.count(keys[i]) > 0) {
      found[i] = {KVC_TIER_PENDING, 0, 0};
    } else if (searching_.size() >= kMaxSearches) {
      found[i] = {KVC_TIER_RETRY, 0, 0};
    } else {
      waiting_.push_back(keys[i]);
      try {
        searching_.insert(keys[i]);
      } catch (...) {
        waiting_.pop_back();
        throw;
      }
      found[i] = {KVC_TIER_PENDING, 0, 0};
    }
  }
  return !waiting_.empty();
}

std::vector<kvc_tier_key> KnownObjects::take(size_t most) {
  MutexLock lock(mutex_);
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(std::min(most, waiting_.size()));
  std::vector<kvc_tier_key> keys(waiting_.begin(), end);
  waiting_.erase(waiting_.begin(), end);
  return keys;
}

void KnownObjects::searched(const kvc_tier_key& key, int64_t bytes, int64_t now_ns) {
  MutexLock lock(mutex_);
  searching_.erase(key);
  // An answer that exists came from a job during the search, so it is newer than the result of the search.
  if (find(key, now_ns) == nullptr) remember(key, bytes, now_ns);
}

bool KnownObjects::waiting() {
  MutexLock lock(mutex_);
  return !waiting_.empty();
}

void KnownObjects::begin_store(const kvc_tier_key& key) {
  MutexLock lock(mutex_);
  ++storing_[key];
}

void KnownObjects::end_store(const kvc_tier_key& key) noexcept {
  MutexLock lock(mutex_);
  const auto found = storing_.find(key);
  if (found != storing_.end() && --found->second == 0) storing_.erase(found);
}

void KnownObjects::learned(const kvc_tier_key& key, int64_t bytes, int64_t now_ns) noexcept {
  MutexLock lock(mutex_);
  remember(key, bytes, now_ns);
}

void KnownObjects::forget(const kvc_tier_key& key) noexcept {
  MutexLock lock(mutex_);
  young_.erase(key);
  old_.erase(key);
}

void KnownObjects::remember(const kvc_tier_key& key, int64_t bytes, int64_t now_ns) noexcept {
  if (young_.size() >= kGeneration) {
    old_.clear();
    old_.swap(young_);
  }
  try {
    young_[key] = {bytes, now_ns + keep_ns_};
  } catch (const std::bad_alloc&) {  // without an answer, the next lookup searches the key again
    young_.erase(key);
  }
}

}  // namespace kvc::redis

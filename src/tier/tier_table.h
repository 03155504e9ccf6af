// Fills the function pointers of a kvc_tier with functions that call the methods of a class. The class must have:
//   - void lookup(int64_t n, const kvc_tier_key*, kvc_tier_found*)
//   - Status submit(TierWork, uint64_t job, int64_t n, const kvc_tier_item*, bool* accepted). *accepted = false: the
//     queue is full
//   - int64_t poll(kvc_tier_completion*, int64_t capacity)
//   - int32_t descriptor()
//   - void cancel(uint64_t job)
//   - void stats(kvc_tier_stats*)
//   - static void close(Tier*)
// It may have int64_t removed(kvc_tier_key*, int64_t capacity).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kvcache_tier.h"
#include "tier/tier_items.h"

namespace kvc {

template <typename Tier>
int32_t submit_to(TierWork work, const char* name, void* self, uint64_t job, int64_t n, const kvc_tier_item* items,
                  kvc_error* error) noexcept {
  bool accepted = false;
  const Status status = static_cast<Tier*>(self)->submit(work, job, n, items, &accepted);
  if (!status.ok()) {
    status.write_to(name, error);
    return KVC_TIER_FAILED;
  }
  return accepted ? KVC_TIER_OK : KVC_TIER_RETRY;
}

// The caller must set the name and the limits.
template <typename Tier>
void fill_tier_table(Tier* of, kvc_tier* table) {
  table->self = of;
  table->lookup = [](void* self, int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) {
    static_cast<Tier*>(self)->lookup(n, keys, found);
  };
  table->store = [](void* self, uint64_t job, int64_t n, const kvc_tier_item* items, kvc_error* error) {
    return submit_to<Tier>(TierWork::kStore, "store", self, job, n, items, error);
  };
  table->load = [](void* self, uint64_t job, int64_t n, const kvc_tier_item* items, kvc_error* error) {
    return submit_to<Tier>(TierWork::kLoad, "load", self, job, n, items, error);
  };
  table->remove = [](void* self, uint64_t job, int64_t n, const kvc_tier_item* items, kvc_error* error) {
    return submit_to<Tier>(TierWork::kRemove, "remove", self, job, n, items, error);
  };
  table->poll = [](void* self, kvc_tier_completion* done, int64_t capacity) {
    return static_cast<Tier*>(self)->poll(done, capacity);
  };
  table->descriptor = [](void* self) { return static_cast<Tier*>(self)->descriptor(); };
  table->cancel = [](void* self, uint64_t job) { static_cast<Tier*>(self)->cancel(job); };
  table->stats = [](void* self, kvc_tier_stats* stats) {  // a caller with an older header has a shorter struct
    kvc_tier_stats all;
    kvc_tier_stats_init(&all);
    static_cast<Tier*>(self)->stats(&all);
    all.struct_size = stats->struct_size;
    std::memcpy(stats, &all, std::min<size_t>(stats->struct_size, sizeof all));
  };
  table->close = [](void* self) { Tier::close(static_cast<Tier*>(self)); };
  if constexpr (requires { of->removed(nullptr, 0); }) {
    table->removed = [](void* self, kvc_tier_key* keys, int64_t capacity) {
      return static_cast<Tier*>(self)->removed(keys, capacity);
    };
  }
}

}  // namespace kvc

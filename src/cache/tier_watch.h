// TierWatch: tells the events of a cache which pages its tiers have.
//
// What a tier has is known from a lookup, which is made under the cache's lock, or from a completion, if the tier does
// not report removals. A tier that reports removals reports each removal after the lookup. So for such a tier the pages
// are exact after take_removals.
//
// Thread safety: the caller of any method holds the cache's lock, except for is_on. Ownership: borrows the core and the
// worker.
#pragma once

#include "cache/cache_core.h"
#include "tier/tier_worker.h"

namespace kvc {

// What events say of the pages of a query, beside their keys and tokens.
struct PageTerms {
  ContextRef context;
  uint64_t session = 0;            // of the publish; 0 = none, several or unknown
  int64_t salt_begin = INT64_MAX;  // the page that has this token, and all later pages, have a salt
};

class TierWatch {
 public:
  TierWatch(CacheCore* core, TierWorker* worker) : core_(*core), worker_(*worker) {}

  // Whether events tell of tiers. If not, no other method may be called.
  bool is_on() const noexcept { return core_.geometry.events_tier_pages > 0; }
  // Call it for a tier before it stores a page.
  static void begin(const kvc_tier& table) noexcept {
    if (table.removed != nullptr) table.removed(table.self, nullptr, 0);
  }
  // Call it after a lookup of an object under the same hold of the lock. make_page() returns its TierPage.
  template <class MakePage>
  void looked_up(const kvc_tier_key& object, const TierWorker::Found& found, MakePage make_page) {
    core_.mutex.assert_held();
    for (int32_t tier = 0; tier < worker_.num_tiers(); ++tier) {
      const int bit = 1 << tier;
      if ((found.misses & bit) != 0) pages().remove(key_of(object), tier);
      if ((found.hits & bit) != 0 && !pages().find(key_of(object), tier)) add(tier, make_page());
    }
  }
  // Call it when a completion says that a tier has a page, or lacks it.
  void changed(int32_t tier, const TierPage& page, bool has);
  // Takes the removals that tiers report.
  void take_removals();

 private:
  static PageKey key_of(const kvc_tier_key& object) noexcept;
  TierPages& pages() KVC_REQUIRES(core_.mutex) { return *core_.tier_pages; }
  void add(int32_t tier, const TierPage& page) KVC_REQUIRES(core_.mutex);
  static bool has(const kvc_tier& table, const kvc_tier_key& object) noexcept;

  CacheCore& core_;
  TierWorker& worker_;
};

}  // namespace kvc

// CacheReports: the statistics of a cache, its description as text, and its audits: a digest, and a check of
// invariants.
#pragma once

#include <span>
#include <string>

#include "base/json_text.h"
#include "cache/cache_core.h"
#include "cache/cache_tiers.h"

namespace kvc {

class CacheReports {
 public:
  CacheReports(CacheCore* core, CacheTiers* tiers) : core_(*core), tiers_(*tiers) {}

  Status stats(int32_t group, kvc_stats* out);
  // Returns the text of kvc_cache_describe. Throws std::bad_alloc.
  std::string describe();
  uint64_t digest();
  Status check_invariants();

 private:
  // Adds the counts of a group to `out`. group -1: adds the counts of all groups.
  void count(int32_t group, kvc_stats* out) const KVC_REQUIRES(core_.mutex);
  void describe_group(int32_t group, std::span<const PageUsers> users, JsonText* out) const KVC_REQUIRES(core_.mutex);
  void describe_steps(std::span<const int32_t> numbers, JsonText* out) const KVC_REQUIRES(core_.mutex);

  CacheCore& core_;
  CacheTiers& tiers_;
};

}  // namespace kvc

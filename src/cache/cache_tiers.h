// CacheTiers: the calls for the tiers of a cache, and for the jobs that load, suspend and resume. A TierJobs does the
// work of these calls. It is created when the first tier is added.
//
// Ownership: owns the TierJobs, which owns the tiers.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cache/cache_core.h"
#include "cache/tier_jobs.h"

namespace kvc {

class CacheTiers {
 public:
  explicit CacheTiers(CacheCore* core) : core_(*core) {}

  // Returns UNSUPPORTED if the cache cannot have tiers.
  Status check_can_have_tiers() const;
  const std::shared_ptr<Context>& context() const noexcept { return core_.context; }
  // If the tier has no medium, it gets one that no other tier has.
  Status add(TierWorker::Tier tier);
  Status suspend(kvc_seq id, kvc_job* job);
  Status resume(kvc_seq id, kvc_job* job);
  Status poll(kvc_job job, kvc_job_info* info);
  Status cancel(kvc_job job);
  Status attach_pending(kvc_job job, const kvc_pending_options& options, kvc_seq* out, int64_t* tokens);
  Status pending(kvc_seq id, kvc_pending_info* info);
  Status descriptor(int32_t* descriptor);
  Status traffic(kvc_tier_traffic* traffic);

  // For the other parts of the cache. Returns null until the first tier was added. After that, the pointer does not
  // change.
  TierJobs* jobs() const noexcept { return jobs_; }
  // Returns UNSUPPORTED if no tier was added.
  Status find_jobs(TierJobs** out) const;
  // The tiers that were added, in this order.
  std::span<const TierWorker::Tier> all() const noexcept;
  // Locked. If events tell of tiers, makes the events of the pages that tiers report as lost.
  void take_removals();
  // Locked. Fills `traffic`. Without a tier, changes nothing.
  void count(kvc_tier_traffic* traffic) const;

 private:
  bool has_medium(std::string_view medium) const noexcept;
  std::string free_medium(bool host) const;

  CacheCore& core_;
  std::unique_ptr<TierJobs> owned_ KVC_GUARDED_BY(core_.mutex);
  std::atomic<TierJobs*> jobs_ = nullptr;  // owned_.get(), once a tier was added
};

}  // namespace kvc

#include "cache/cache_tiers.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace kvc {

Status CacheTiers::check_can_have_tiers() const {
  const char* missing = !core_.geometry.store.indexed ? "KVC_CACHE_PREFIX_INDEX"
                        : !core_.geometry.fingerprint ? "a fingerprint"
                        : core_.geometry.tables_only  ? "pools"
                                                      : nullptr;
  if (missing == nullptr) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "a tier needs %s", missing);
}

std::span<const TierWorker::Tier> CacheTiers::all() const noexcept {
  TierJobs* const jobs = jobs_;
  return jobs == nullptr ? std::span<const TierWorker::Tier>() : jobs->tiers();
}

bool CacheTiers::has_medium(std::string_view medium) const noexcept {
  const auto tiers = all();
  return medium == (core_.context->is_host() ? "CPU" : "GPU") ||
         std::any_of(tiers.begin(), tiers.end(), [=](const TierWorker::Tier& tier) { return tier.medium == medium; });
}

std::string CacheTiers::free_medium(bool host) const {
  const char* const name = !host ? "STORAGE" : core_.context->is_host() ? "HOST" : "CPU";
  char medium[24];
  std::snprintf(medium, sizeof(medium), "%s", name);
  for (int number = 2; has_medium(medium); ++number) std::snprintf(medium, sizeof(medium), "%s%d", name, number);
  return medium;
}

Status CacheTiers::add(TierWorker::Tier tier) {
  KVC_TRY(check_can_have_tiers());
  MutexLock lock(core_.mutex);
  if (has_medium(tier.medium)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "medium \"%s\" is taken", tier.medium.c_str());
  }
  if (tier.medium.empty()) tier.medium = free_medium(tier.host != nullptr);
  if (!owned_) KVC_TRY(TierJobs::create(&core_, &owned_));
  if (tier.stores == TierWorker::Stores::kEvicted) core_.prefixes->keep_keys(*core_.geometry.fingerprint);
  KVC_TRY(owned_->add(tier));
  jobs_ = owned_.get();
  return Status();
}

Status CacheTiers::find_jobs(TierJobs** out) const {
  *out = jobs_;
  return *out != nullptr ? Status() : Status::error(KVC_ERROR_UNSUPPORTED, "the cache has no tier");
}

void CacheTiers::take_removals() {
  if (TierJobs* const jobs = jobs_; jobs != nullptr) jobs->take_removals();
}

Status CacheTiers::poll(kvc_job job, kvc_job_info* info) {
  TierJobs* const jobs = jobs_;
  if (jobs == nullptr) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", job);
  MutexLock lock(core_.mutex);
  bool done = false;
  KVC_TRY(jobs->poll(job, &done, &info->tokens));
  info->done = done ? 1 : 0;
  return Status();
}

Status CacheTiers::cancel(kvc_job job) {
  TierJobs* const jobs = jobs_;
  if (jobs == nullptr) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", job);
  MutexLock lock(core_.mutex);
  return jobs->cancel(job);
}

Status CacheTiers::attach_pending(kvc_job job, const kvc_pending_options& options, kvc_seq* out, int64_t* tokens) {
  if ((options.flags & ~uint32_t{KVC_PENDING_WAIT}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", options.flags);
  }
  if (options.timeout_ns < 0) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "timeout_ns %" PRId64 " is negative", options.timeout_ns);
  }
  TierJobs* jobs = nullptr;
  KVC_TRY(find_jobs(&jobs));
  MutexLock lock(core_.mutex);
  return jobs->attach(job, (options.flags & KVC_PENDING_WAIT) != 0, options.timeout_ns, out, tokens);
}

Status CacheTiers::pending(kvc_seq id, kvc_pending_info* info) {
  MutexLock lock(core_.mutex);
  int32_t slot = -1;
  KVC_TRY(core_.store.resolve(id, 0, &slot));
  info->ready_layers = core_.layers.size();
  const PendingPrefixes::Entry* const entry = core_.pending.find(id);
  if (entry == nullptr) return Status();
  const LoadProgress::Counts counts = entry->progress->count();
  info->ready_layers = counts.ready_layers;
  info->job = entry->progress->job();
  info->tokens = entry->tokens;
  info->pages = counts.pages;
  info->pages_loaded = counts.loaded;
  info->failed = counts.failed ? 1 : 0;
  return Status();
}

Status CacheTiers::descriptor(int32_t* descriptor) {
  TierJobs* jobs = nullptr;
  KVC_TRY(find_jobs(&jobs));
  *descriptor = jobs->descriptor();
  return Status();
}

Status CacheTiers::suspend(kvc_seq id, kvc_job* job) {
  TierJobs* jobs = nullptr;
  KVC_TRY(find_jobs(&jobs));
  MutexLock lock(core_.mutex);
  return jobs->suspend(id, job);
}

Status CacheTiers::resume(kvc_seq id, kvc_job* job) {
  TierJobs* jobs = nullptr;
  KVC_TRY(find_jobs(&jobs));
  MutexLock lock(core_.mutex);
  return jobs->resume(id, job);
}

Status CacheTiers::traffic(kvc_tier_traffic* traffic) {
  MutexLock lock(core_.mutex);
  count(traffic);
  return Status();
}

void CacheTiers::count(kvc_tier_traffic* traffic) const {
  TierJobs* const jobs = jobs_;
  if (jobs == nullptr) return;
  const TierWorker::Counts counts = jobs->counts();
  traffic->sequences_suspended = jobs->num_suspended();
  traffic->num_tiers = jobs->num_tiers();
  traffic->pages_waiting = counts.queued;
  traffic->pages_stored = counts.stored_pages;
  traffic->pages_dropped = counts.dropped_pages;
  traffic->pages_not_stored = counts.failed_stores;
  traffic->pages_loading = counts.loading_pages;
  traffic->pages_loaded = counts.loaded_pages;
  traffic->pages_not_loaded = counts.failed_loads;
}

}  // namespace kvc

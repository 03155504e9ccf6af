// The calls for the tiers of a cache, and for the jobs that load, suspend and resume.
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

Status Cache::check_can_have_tiers() const {
  const char* missing = !geometry_.store.indexed ? "KVC_CACHE_PREFIX_INDEX"
                        : !geometry_.fingerprint ? "a fingerprint"
                        : geometry_.tables_only  ? "pools"
                                                 : nullptr;
  if (missing == nullptr) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "a tier needs %s", missing);
}

Status Cache::add_tier(const TierWorker::Tier& tier) {
  KVC_TRY(check_can_have_tiers());
  MutexLock lock(mutex_);
  if (!owned_tiers_) KVC_TRY(CacheTiers::create(layers_, &mutex_, &order_, &store_, prefixes_.get(), &owned_tiers_));
  KVC_TRY(owned_tiers_->add(tier));
  tiers_ = owned_tiers_.get();
  return Status();
}

Status Cache::find_tiers(CacheTiers** tiers) const {
  *tiers = tiers_;
  return *tiers != nullptr ? Status() : Status::error(KVC_ERROR_UNSUPPORTED, "the cache has no tier");
}

Status Cache::poll_job(kvc_job job, kvc_job_info* info) {
  CacheTiers* tiers = tiers_;
  if (tiers == nullptr) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", job);
  MutexLock lock(mutex_);
  bool done = false;
  KVC_TRY(tiers->poll(job, &done, &info->tokens));
  info->done = done ? 1 : 0;
  return Status();
}

Status Cache::cancel_job(kvc_job job) {
  CacheTiers* tiers = tiers_;
  if (tiers == nullptr) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", job);
  MutexLock lock(mutex_);
  return tiers->cancel(job);
}

Status Cache::job_descriptor(int32_t* descriptor) {
  CacheTiers* tiers = nullptr;
  KVC_TRY(find_tiers(&tiers));
  *descriptor = tiers->descriptor();
  return Status();
}

Status Cache::suspend(kvc_seq id, kvc_job* job) {
  CacheTiers* tiers = nullptr;
  KVC_TRY(find_tiers(&tiers));
  MutexLock lock(mutex_);
  return tiers->suspend(id, job);
}

Status Cache::resume(kvc_seq id, kvc_job* job) {
  CacheTiers* tiers = nullptr;
  KVC_TRY(find_tiers(&tiers));
  MutexLock lock(mutex_);
  return tiers->resume(id, job);
}

Status Cache::tier_traffic(kvc_tier_traffic* traffic) {
  MutexLock lock(mutex_);
  count_traffic(traffic);
  return Status();
}

void Cache::count_traffic(kvc_tier_traffic* traffic) const {
  CacheTiers* const tiers = tiers_;
  if (tiers == nullptr) return;
  const TierWorker::Counts counts = tiers->counts();
  traffic->sequences_suspended = tiers->num_suspended();
  traffic->num_tiers = tiers->num_tiers();
  traffic->pages_waiting = counts.queued;
  traffic->pages_stored = counts.stored_pages;
  traffic->pages_dropped = counts.dropped_pages;
  traffic->pages_not_stored = counts.failed_stores;
  traffic->pages_loading = counts.loading_pages;
  traffic->pages_loaded = counts.loaded_pages;
  traffic->pages_not_loaded = counts.failed_loads;
}

}  // namespace kvc

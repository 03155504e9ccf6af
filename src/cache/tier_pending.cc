// Pending sequences: they are attached to a load that runs.
#include <algorithm>
#include <cinttypes>

#include "cache/tier_jobs.h"

namespace kvc {

std::shared_ptr<LoadProgress> TierJobs::make_progress(uint64_t job,
                                                      const std::vector<TierWorker::LoadPage>& pages) const {
  std::vector<int64_t> counts(static_cast<size_t>(core_.num_groups()));
  for (const TierWorker::LoadPage& load : pages) ++counts[static_cast<size_t>(load.page.group)];
  std::vector<int32_t> layer_groups;
  for (int32_t i = 0; i < core_.layers.size(); ++i) layer_groups.push_back(core_.layers[i].group);
  return std::make_shared<LoadProgress>(job, std::move(layer_groups), std::move(counts), worker_.in_child());
}

Status TierJobs::attach(uint64_t id, bool waits, int64_t limit_ns, uint64_t* sequence, int64_t* tokens) {
  core_.mutex.assert_held();
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return Status::error(KVC_ERROR_STALE_ID, "job %" PRIu64 " does not exist", id);
  const Job& job = found->second;
  if (job.kind != Job::Kind::kLoad) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "job %" PRIu64 " is no job of kvc_prefix_load", id);
  }
  if (job.searching) return Status::error(KVC_ERROR_PENDING, "job %" PRIu64 " still searches the tiers", id);
  const int64_t page_size = core_.geometry.page_size;
  const int64_t length = std::min(job.tokens, job.request.gate.most_tokens / page_size * page_size);
  PendingPrefixes::Entry& entry = core_.pending.reserve();
  KVC_TRY(core_.store.share_filled(job.sequence, length, sequence));
  *tokens = length;
  if (length <= job.found) return Status();  // the pools have these tokens
  entry = {*sequence, job.progress, waits, length - job.found, -1};
  core_.pending.add(&core_.store);
  worker_.load_by_group(job.load, limit_ns);
  return Status();
}

}  // namespace kvc

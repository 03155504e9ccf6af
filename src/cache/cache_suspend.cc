// Suspended sequences: moves their pages to tiers, and back to the pools.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <new>
#include <thread>

#include "base/assert.h"
#include "cache/cache_tiers.h"
#include "system/random.h"

namespace kvc {
namespace {

Status was_removed(uint64_t sequence) {
  return Status::error(KVC_ERROR_STALE_ID, "sequence %" PRIu64 " was removed while its pages were moved", sequence);
}

Status was_cancelled(uint64_t sequence) {
  return Status::error(KVC_ERROR_CANCELLED, "the job was cancelled, and sequence %" PRIu64 " is as it was", sequence);
}

}  // namespace

// Makes a random key, so that objects of other caches, processes and machines in the same tier have other keys.
Status CacheTiers::make_suspend_key(PageKey* key) {
  if (fill_random(key->data(), key->size())) return Status();
  return Status::error(KVC_ERROR_IO, "no random bytes for the keys of a tier: %s", std::strerror(errno));
}

Status CacheTiers::suspend(uint64_t sequence, uint64_t* job) {
  if (!worker_.can_store()) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "every tier is read only");
  }
  Job made;
  made.kind = Job::Kind::kSuspend;
  made.sequence = sequence;
  std::vector<SequenceStore::PageReference> moved;
  KVC_TRY(store_.begin_suspend(sequence, &moved));
  Status begun;
  try {
    std::vector<TierWorker::LoadPage> pages(moved.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      // The job and the number of the page make the key unique.
      TierPage& page = pages[i].page;
      page.group = moved[i].group;
      page.page = moved[i].page;
      page.block = static_cast<int64_t>(i);
      page.page_key = suspend_key_;
      const uint64_t numbers[2] = {last_job_ + 1, i};
      std::memcpy(page.page_key.data(), numbers, sizeof numbers);
      page.key = objects_->key_of(page.group, page.page_key);
    }
    suspended_.try_emplace(sequence);  // so that finish_suspend allocates no memory
    jobs_[last_job_ + 1] = std::move(made);
    begun = worker_.store_all(std::move(pages), &jobs_[last_job_ + 1].load);
  } catch (const std::bad_alloc&) {
    begun = Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory to suspend a sequence of %zu pages", moved.size());
  }
  if (begun.ok()) {
    *job = ++last_job_;
    return begun;
  }
  jobs_.erase(last_job_ + 1);
  suspended_.erase(sequence);
  store_.end_suspend(sequence, false);
  return begun;
}

Status CacheTiers::finish_suspend(const Job& job, TierWorker::Loaded stored, int64_t* tokens) {
  const bool done = stored.first_failed == INT64_MAX;
  const bool exists = store_.end_suspend(job.sequence, done);
  if (done && exists) {
    *tokens = store_.length(store_.slot_of(job.sequence));
    suspended_[job.sequence] = std::move(stored.pages);
    return Status();
  }
  suspended_.erase(job.sequence);
  remove_objects(std::move(stored.pages));
  if (!exists) return was_removed(job.sequence);
  if (job.cancelled) return was_cancelled(job.sequence);
  return Status::error(KVC_ERROR_IO, "no tier took page %" PRId64 " of those of sequence %" PRIu64 ": it is as it was",
                       stored.first_failed, job.sequence);
}

Status CacheTiers::resume(uint64_t sequence, uint64_t* job) {
  std::vector<SequenceStore::PageReference> fresh;
  KVC_TRY(store_.begin_resume(sequence, &fresh));
  Status begun;
  try {
    std::vector<TierWorker::LoadPage> pages = suspended_.at(sequence);
    KVC_ASSERT(pages.size() == fresh.size(), pages.size(), fresh.size());
    for (size_t i = 0; i < pages.size(); ++i) pages[i].page.page = fresh[i].page;
    Job& made = jobs_[last_job_ + 1];
    made.kind = Job::Kind::kResume;
    made.sequence = sequence;
    begun = worker_.load(std::move(pages), &made.load);
  } catch (const std::bad_alloc&) {
    begun = Status::error(KVC_ERROR_OUT_OF_MEMORY, "no memory to resume a sequence of %zu pages", fresh.size());
  }
  if (begun.ok()) {
    *job = ++last_job_;
    return begun;
  }
  jobs_.erase(last_job_ + 1);
  store_.end_resume(sequence, false);
  return begun;
}

Status CacheTiers::finish_resume(const Job& job, const TierWorker::Loaded& loaded, int64_t* tokens) {
  const bool done = loaded.first_failed == INT64_MAX;
  const bool exists = store_.end_resume(job.sequence, done);
  if (!exists || done) {
    if (exists) *tokens = store_.length(store_.slot_of(job.sequence));
    const auto found = suspended_.find(job.sequence);
    remove_objects(std::move(found->second));
    suspended_.erase(found);
    return exists ? Status() : was_removed(job.sequence);
  }
  if (job.cancelled) return was_cancelled(job.sequence);
  return Status::error(KVC_ERROR_IO,
                       "the tiers have lost page %" PRId64 " of those of sequence %" PRIu64 ", which stays suspended",
                       loaded.first_failed, job.sequence);
}

void CacheTiers::forget(uint64_t sequence) noexcept {
  const auto found = suspended_.find(sequence);
  if (found == suspended_.end()) return;
  for (const auto& [id, job] : jobs_) {
    if (job.kind != Job::Kind::kLoad && job.sequence == sequence) return;  // the end of that job removes the objects
  }
  remove_objects(std::move(found->second));
  suspended_.erase(found);
}

int64_t CacheTiers::num_suspended() const noexcept {
  const auto running =
      std::count_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second.kind == Job::Kind::kSuspend; });
  return static_cast<int64_t>(suspended_.size()) - running;
}

void CacheTiers::forget_all() noexcept {
  for (auto& [sequence, pages] : suspended_) remove_objects(std::move(pages));
  suspended_.clear();
}

// If no memory is left, the objects stay in the tiers. This is harmless, because their keys are never used again.
void CacheTiers::remove_objects(std::vector<TierWorker::LoadPage> pages) noexcept {
  try {
    worker_.remove(std::move(pages));
  } catch (const std::bad_alloc&) {
  }
}

// Call it when the cache is destroyed. Removes the objects of unfinished jobs and of suspended sequences from the
// tiers.
void CacheTiers::end_suspends() noexcept {
  for (auto& [id, job] : jobs_) {
    if (job.kind != Job::Kind::kSuspend) continue;
    worker_.cancel_load(job.load);
    TierWorker::Loaded stored;
    while (!(stored = worker_.poll_load(job.load)).done && stored.known) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    remove_objects(std::move(stored.pages));
  }
  forget_all();
}

}  // namespace kvc

// Moves the pages of suspended sequences to tiers, and back to the pools.
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <new>
#include <thread>

#include "base/assert.h"
#include "cache/tier_jobs.h"
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

// Makes a random key. So in a tier that several caches share, the objects of different caches have different keys.
Status TierJobs::make_suspend_key(PageKey* key) {
  if (fill_random(key->data(), key->size())) return Status();
  return Status::error(KVC_ERROR_IO, "no random bytes for the keys of a tier: %s", std::strerror(errno));
}

// Returns how many tokens of a sequence each layer holds; 0 for a layer that reads the K and V of another layer. Throws
// std::bad_alloc.
std::vector<int64_t> TierJobs::held_tokens(int32_t slot) const {
  std::vector<int64_t> held(static_cast<size_t>(core_.layers.size()));
  for (int32_t i = 0; i < core_.layers.size(); ++i) {
    if (core_.layers[i].kv_layer >= 0) continue;
    held[static_cast<size_t>(i)] = core_.store.held(slot, core_.layers[i].group, i);
  }
  return held;
}

Status TierJobs::suspend(uint64_t sequence, uint64_t* job) {
  core_.mutex.assert_held();
  if (!worker_.can_store()) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "every tier is read only");
  }
  Job made;
  made.kind = Job::Kind::kSuspend;
  made.sequence = sequence;
  std::vector<SequenceStore::MovedPage> moved;
  KVC_TRY(core_.store.begin_suspend(sequence, &moved));
  Status begun;
  try {
    const auto held = std::make_shared<const std::vector<int64_t>>(held_tokens(core_.store.slot_of(sequence)));
    std::vector<TierWorker::LoadPage> pages(moved.size());
    for (size_t i = 0; i < pages.size(); ++i) {
      // The numbers of the job and of the page make the key unique.
      TierPage& page = pages[i].page;
      page.group = moved[i].group;
      page.page = moved[i].page;
      page.block = static_cast<int64_t>(i);
      page.position = moved[i].position;
      page.held = held;
      page.page_key = suspend_key_;
      const uint64_t numbers[2] = {last_job_ + 1, i};
      std::memcpy(page.page_key.data(), numbers, sizeof numbers);
      page.key = objects_->key_of(page.group, page.page_key);
      pages[i].found.bytes = objects_->suspended_bytes(page.group);
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
  core_.store.end_suspend(sequence, false);
  return begun;
}

Status TierJobs::finish_suspend(const Job& job, TierWorker::Loaded stored, int64_t* tokens) {
  const bool done = stored.first_failed == INT64_MAX;
  const bool exists = core_.store.end_suspend(job.sequence, done);
  if (done && exists) {
    *tokens = core_.store.length(core_.store.slot_of(job.sequence));
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

Status TierJobs::resume(uint64_t sequence, uint64_t* job) {
  core_.mutex.assert_held();
  std::vector<SequenceStore::PageReference> fresh;
  KVC_TRY(core_.store.begin_resume(sequence, &fresh));
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
  core_.store.end_resume(sequence, false);
  return begun;
}

Status TierJobs::finish_resume(const Job& job, const TierWorker::Loaded& loaded, int64_t* tokens) {
  const bool done = loaded.first_failed == INT64_MAX;
  const bool exists = core_.store.end_resume(job.sequence, done);
  if (!exists || done) {
    if (exists) *tokens = core_.store.length(core_.store.slot_of(job.sequence));
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

void TierJobs::forget(uint64_t sequence) noexcept {
  core_.mutex.assert_held();
  known_before_.erase(sequence);
  if (const uint64_t job = core_.pending.forget(sequence); job != 0) (void)cancel(job).ok();  // the job may have ended
  const auto found = suspended_.find(sequence);
  if (found == suspended_.end()) return;
  for (const auto& [id, job] : jobs_) {
    if (job.kind != Job::Kind::kLoad && job.sequence == sequence) return;  // the end of that job removes the objects
  }
  remove_objects(std::move(found->second));
  suspended_.erase(found);
}

int64_t TierJobs::num_suspended() const noexcept {
  core_.mutex.assert_held();
  auto count = static_cast<int64_t>(suspended_.size());
  for (const auto& [id, job] : jobs_) count -= job.kind == Job::Kind::kSuspend ? 1 : 0;
  return count;
}

void TierJobs::forget_all() noexcept {
  core_.mutex.assert_held();
  for (auto& [sequence, pages] : suspended_) remove_objects(std::move(pages));
  suspended_.clear();
  known_before_.clear();
}

// If there is no memory for the removal, the objects stay in the tiers. This is harmless, because their keys are never
// used again.
void TierJobs::remove_objects(std::vector<TierWorker::LoadPage> pages) noexcept {
  try {
    worker_.remove(std::move(pages));
  } catch (const std::bad_alloc&) {
  }
}

// Removes the objects of unfinished suspends and of suspended sequences from the tiers. It waits without the lock,
// because the worker's thread needs the lock to end a suspend.
TierJobs::~TierJobs() {
  core_.prefixes->set_watcher(nullptr);
  for (auto& [id, job] : jobs_) {
    if (job.kind != Job::Kind::kSuspend) continue;
    worker_.cancel_load(job.load);
    TierWorker::Loaded stored;
    while (!(stored = worker_.poll_load(job.load)).done && stored.known) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    remove_objects(std::move(stored.pages));
  }
  MutexLock lock(core_.mutex);
  forget_all();
}

}  // namespace kvc

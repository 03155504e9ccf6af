#include "tier/load_progress.h"

#include <cinttypes>
#include <utility>

namespace kvc {

LoadProgress::LoadProgress(uint64_t job, std::vector<int32_t> layer_groups, std::vector<int64_t> pages,
                           const std::atomic<bool>& in_child)
    : job_(job), layer_groups_(std::move(layer_groups)), in_child_(in_child), groups_(pages.size()) {
  for (size_t g = 0; g < pages.size(); ++g) groups_[g].pages = pages[g];
}

void LoadProgress::loaded(int32_t group) noexcept {
  MutexLock lock(mutex_);
  Group& of = groups_[static_cast<size_t>(group)];
  if (++of.loaded == of.pages) changed_.notify_all();
}

void LoadProgress::fail(bool cancelled) noexcept {
  MutexLock lock(mutex_);
  cancelled_ = failed_ ? cancelled_ : cancelled;
  failed_ = true;
  changed_.notify_all();
}

bool LoadProgress::failed() const noexcept {
  if (in_child_) return true;
  MutexLock lock(mutex_);
  return failed_;
}

void LoadProgress::wake() noexcept {
  if (in_child_) return;
  MutexLock lock(mutex_);
  changed_.notify_all();
}

bool LoadProgress::ready(int32_t layer) const noexcept {
  const Group& group = groups_[static_cast<size_t>(layer_groups_[static_cast<size_t>(layer)])];
  return group.loaded == group.pages;
}

bool LoadProgress::all_ready() const noexcept {
  return count().ready_layers == static_cast<int32_t>(layer_groups_.size());
}

Status LoadProgress::failure(int32_t layer) const {
  if (cancelled_) {
    return Status::error(KVC_ERROR_CANCELLED, "job %" PRIu64 " was cancelled before it had loaded layer %d", job_,
                         layer)
        .at(layer);
  }
  return Status::error(KVC_ERROR_IO, "job %" PRIu64 " cannot load layer %d, because the tiers have lost a page", job_,
                       layer)
      .at(layer);
}

Status LoadProgress::wait(int32_t layer, bool waits, const int32_t* stopped) const {
  if (in_child_) return Status::error(KVC_ERROR_IO, "job %" PRIu64 " does not run in a child of fork()", job_);
  MutexLock lock(mutex_);
  while (!ready(layer)) {
    if (failed_) return failure(layer);
    if (!waits) {
      const int32_t g = layer_groups_[static_cast<size_t>(layer)];
      const Group& group = groups_[static_cast<size_t>(g)];
      return Status::error(KVC_ERROR_PENDING,
                           "layer %d has %" PRId64 " of the %" PRId64 " pages that job %" PRIu64 " loads", layer,
                           group.loaded, group.pages, job_)
          .at(layer)
          .missing(group.pages, group.loaded)
          .in_group(g);
    }
    if (stopped != nullptr && __atomic_load_n(stopped, __ATOMIC_RELAXED) != 0) {
      return Status::error(KVC_ERROR_CANCELLED, "this forward was cancelled");
    }
    changed_.wait(mutex_);
  }
  return Status();
}

Status LoadProgress::check_not_failed() const {
  if (in_child_) return wait(0, false, nullptr);
  MutexLock lock(mutex_);
  if (!failed_) return Status();
  int32_t layer = 0;
  while (layer < static_cast<int32_t>(layer_groups_.size()) && ready(layer)) ++layer;
  return layer == static_cast<int32_t>(layer_groups_.size()) ? Status() : failure(layer);
}

LoadProgress::Counts LoadProgress::count() const noexcept {
  Counts counts;
  if (in_child_) {
    counts.failed = true;
    return counts;
  }
  MutexLock lock(mutex_);
  while (counts.ready_layers < static_cast<int32_t>(layer_groups_.size()) && ready(counts.ready_layers))
    ++counts.ready_layers;
  for (const Group& group : groups_) {
    counts.pages += group.pages;
    counts.loaded += group.loaded;
  }
  counts.failed = failed_;
  return counts;
}

}  // namespace kvc

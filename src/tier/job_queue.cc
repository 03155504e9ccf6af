#include "tier/job_queue.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/assert.h"
#include "system/wake_event.h"

namespace kvc {

JobQueue::JobQueue(int32_t max_items, bool errands_first)
    : max_items_(max_items),
      errands_first_(errands_first),
      loads_(static_cast<size_t>(max_items)),
      others_(static_cast<size_t>(max_items)),
      done_(static_cast<size_t>(max_items)) {}

JobQueue::~JobQueue() { forget_descriptor(); }

void JobQueue::forget_descriptor() noexcept {
  if (event_ >= 0) close_event(event_);
  event_ = -1;
}

Status JobQueue::open() {
  event_ = open_event();
  if (event_ < 0) return Status::error(KVC_ERROR_OUT_OF_MEMORY, "an event: %s", std::strerror(errno));
  return Status();
}

bool JobQueue::submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items) noexcept {
  MutexLock lock(mutex_);
  if (n > max_items_ - open_items_) return false;
  Ring<TierTask>& ring = work == TierWork::kLoad ? loads_ : others_;
  for (int64_t i = 0; i < n; ++i) ring.push({job, i, &items[i], work});
  open_items_ += n;
  if (n == 1)
    work_.notify_one();
  else
    work_.notify_all();
  return true;
}

void JobQueue::request_errand() noexcept {
  MutexLock lock(mutex_);
  errand_ = true;
  work_.notify_one();
}

JobQueue::Next JobQueue::take(TierTask* task) noexcept {
  MutexLock lock(mutex_);
  while (!stop_ && !errand_ && loads_.size() == 0 && others_.size() == 0) work_.wait(mutex_);
  if (stop_) return Next::kStop;
  const bool load = loads_.size() > 0 && (loads_in_a_row_ < kLoadsInARow || others_.size() == 0);
  if (errand_ && (errands_first_ || (!load && others_.size() == 0))) {
    errand_ = false;
    return Next::kErrand;
  }
  loads_in_a_row_ = load ? std::min(loads_in_a_row_ + 1, kLoadsInARow) : 0;
  *task = (load ? loads_ : others_).pop();
  return Next::kTask;
}

void JobQueue::add_completion(const TierTask& task, int32_t result, int32_t os_error) noexcept {
  done_.push({task.job, task.index, result, os_error});
  KVC_ASSERT(static_cast<int64_t>(done_.size()) <= open_items_, done_.size(), open_items_);
  if (done_.size() == 1) write_event(event_);
}

void JobQueue::complete(const TierTask& task, int32_t result, int32_t os_error) noexcept {
  MutexLock lock(mutex_);
  add_completion(task, result, os_error);
}

int64_t JobQueue::poll(kvc_tier_completion* done, int64_t capacity) noexcept {
  MutexLock lock(mutex_);
  const int64_t n = std::min(capacity, static_cast<int64_t>(done_.size()));
  if (n <= 0) return 0;
  for (int64_t i = 0; i < n; ++i) done[i] = done_.pop();
  open_items_ -= n;
  if (done_.size() == 0) clear_event(event_);
  return n;
}

void JobQueue::stop() noexcept {
  MutexLock lock(mutex_);
  stop_ = true;
  work_.notify_all();
}

int64_t JobQueue::open_items() const noexcept {
  MutexLock lock(mutex_);
  return open_items_;
}

}  // namespace kvc

// JobQueue: the items that wait for a thread of a tier, and the completions that poll has not returned yet.
//
//   open_items() = waiting + taken by threads + completions not polled  <= max_items
// So all memory is allocated when the queue is created. A submit that would exceed max_items is refused, with all its
// items. Loads are taken before other items, because requests wait for loads. While both wait, seven loads are taken
// and then one other item, so that stores proceed while new loads arrive. An errand is work without an item. It is
// taken when no item waits or, with errands_first, before all items.
//
// Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "kvcache_tier.h"
#include "tier/tier_items.h"

namespace kvc {

struct TierTask {
  uint64_t job = 0;
  int64_t index = 0;
  const kvc_tier_item* item = nullptr;
  TierWork work = TierWork::kLoad;
};

// A first in, first out list of fixed capacity.
template <typename T>
class Ring {
 public:
  explicit Ring(size_t capacity) : slots_(capacity) {}
  size_t size() const noexcept { return size_; }
  const T& front() const noexcept { return slots_[head_]; }
  void push(const T& value) noexcept { slots_[(head_ + size_++) % slots_.size()] = value; }
  T pop() noexcept {
    const T value = slots_[head_];
    head_ = (head_ + 1) % slots_.size();
    --size_;
    return value;
  }

 private:
  std::vector<T> slots_;
  size_t head_ = 0, size_ = 0;
};

class JobQueue {
 public:
  // What a thread must do after take().
  enum class Next { kTask, kErrand, kStop };

  explicit JobQueue(int32_t max_items, bool errands_first = false);  // throws std::bad_alloc
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Creates the descriptor. Call it once, before any other method.
  Status open();
  int descriptor() const noexcept { return event_; }

  // Returns false if the items do not fit now.
  bool submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items) noexcept;
  // Requests an errand, for which take() returns kErrand to one thread. Does nothing if an earlier errand was not taken
  // yet.
  void request_errand() noexcept;

  // Waits for an item or an errand. After stop(), always returns kStop.
  Next take(TierTask* task) noexcept;
  // Takes up to `most` further loads for a thread that has just taken a load, if fits(task) is true for each. Leaves a
  // share for the other threads of the tier, of which there are `threads` - 1.
  template <typename Fits>
  int take_loads(TierTask* tasks, int most, int threads, Fits fits) {
    MutexLock lock(mutex_);
    if (stop_) return 0;
    most = std::min(most, static_cast<int>(loads_.size()) / threads);
    if (others_.size() > 0) most = std::min(most, kLoadsInARow - loads_in_a_row_);
    int count = 0;
    while (count < most && fits(loads_.front())) tasks[count++] = loads_.pop();
    loads_in_a_row_ = std::min(loads_in_a_row_ + count, kLoadsInARow);
    return count;
  }
  void complete(const TierTask& task, int32_t result, int32_t os_error) noexcept;
  int64_t poll(kvc_tier_completion* done, int64_t capacity) noexcept;

  // Completes the waiting items of a job as CANCELLED, and calls cancelled(task) for each.
  template <typename Cancelled>
  void cancel(uint64_t job, Cancelled cancelled) {
    MutexLock lock(mutex_);
    cancel_in(&loads_, job, cancelled);
    cancel_in(&others_, job, cancelled);
  }

  void stop() noexcept;  // take() returns kStop from now on, so each thread ends after its present item
  int64_t open_items() const noexcept;
  void forget_descriptor() noexcept;  // for a child of fork(): only closes the descriptor

 private:
  template <typename Cancelled>
  void cancel_in(Ring<TierTask>* ring, uint64_t job, Cancelled cancelled) KVC_REQUIRES(mutex_) {
    for (size_t left = ring->size(); left > 0; --left) {
      const TierTask task = ring->pop();
      if (task.job != job) {
        ring->push(task);
        continue;
      }
      cancelled(task);
      add_completion(task, KVC_TIER_CANCELLED, 0);
    }
  }
  void add_completion(const TierTask& task, int32_t result, int32_t os_error) noexcept KVC_REQUIRES(mutex_);

  static constexpr int32_t kLoadsInARow = 7;

  const int64_t max_items_;
  const bool errands_first_;
  int event_ = -1;  // an event (system/wake_event.h), signalled while there are completions
  mutable Mutex mutex_;
  Condition work_;
  Ring<TierTask> loads_ KVC_GUARDED_BY(mutex_);
  Ring<TierTask> others_ KVC_GUARDED_BY(mutex_);
  Ring<kvc_tier_completion> done_ KVC_GUARDED_BY(mutex_);
  int64_t open_items_ KVC_GUARDED_BY(mutex_) = 0;
  int32_t loads_in_a_row_ KVC_GUARDED_BY(mutex_) = 0;
  bool errand_ KVC_GUARDED_BY(mutex_) = false;
  bool stop_ KVC_GUARDED_BY(mutex_) = false;
};

}  // namespace kvc

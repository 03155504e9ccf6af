// JobQueue: the items that wait for a thread of a tier, and the completions that wait for poll.
//
//   open_items() = waiting + taken by threads + completions not polled  <= max_items
// So all memory is taken when the queue is made. A submit beyond max_items is refused whole.
// Loads are taken before other items, because a step waits for them. Every eighth item is one of the others, so that
// stores proceed while loads keep coming. An errand is taken when no item waits or, if that is chosen, before all
// items.
//
// Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  // What take() found for a thread to do.
  enum class Next { kTask, kErrand, kStop };

  explicit JobQueue(int32_t max_items, bool errands_first = false);  // throws std::bad_alloc
  ~JobQueue();
  JobQueue(const JobQueue&) = delete;
  JobQueue& operator=(const JobQueue&) = delete;

  // Makes the descriptor. Call it once, before all else.
  Status open();
  int descriptor() const noexcept { return event_; }

  // False if the items do not fit now.
  bool submit(TierWork work, uint64_t job, int64_t n, const kvc_tier_item* items) noexcept;
  // Requests an errand, which is work without an item: the next free thread gets kErrand from take(). While an errand
  // is requested and not taken, the call does nothing.
  void request_errand() noexcept;

  // Waits for something to do. After stop(), always kStop.
  Next take(TierTask* task) noexcept;
  void complete(const TierTask& task, int32_t result, int32_t os_error) noexcept;
  int64_t poll(kvc_tier_completion* done, int64_t capacity) noexcept;

  // Completes the waiting items of a job as CANCELLED, and calls cancelled(item) for each.
  template <typename Cancelled>
  void cancel(uint64_t job, Cancelled cancelled) {
    MutexLock lock(mutex_);
    cancel_in(&loads_, job, cancelled);
    cancel_in(&others_, job, cancelled);
  }

  void stop() noexcept;  // threads end after the item that they have
  int64_t open_items() const noexcept;
  void forget_descriptor() noexcept;  // in a child of fork(): closes it, and does nothing else

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

  const int64_t max_items_;
  const bool errands_first_;
  int event_ = -1;  // an eventfd; readable while there are completions
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

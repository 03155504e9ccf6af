// Cache::ForwardUse: a step while a call is inside it.
#pragma once

#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

// Marks a step as in use by this call: a second call on it meanwhile gets BUSY.
class Cache::ForwardUse {
 public:
  explicit ForwardUse(Cache& cache) : cache_(cache) {}
  ~ForwardUse() {
    if (forward_ == nullptr) return;
    MutexLock lock(cache_.mutex_);
    forward_->in_use = false;
    if (!broken_ || cache_.close(*forward_, false).code() != KVC_ERROR_ORDER) return;
    // Of a stream that is being captured: only abort is left, when that has ended.
    __atomic_store_n(&forward_->cancelled, 1, __ATOMIC_RELAXED);
  }
  ForwardUse(const ForwardUse&) = delete;
  ForwardUse& operator=(const ForwardUse&) = delete;

  Status enter(kvc_forward id) {
    MutexLock lock(cache_.mutex_);
    int32_t slot = -1;
    KVC_TRY(cache_.resolve_forward(id, &slot));
    Forward& forward = *cache_.forwards_[static_cast<size_t>(slot)];
    if (forward.in_use) return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " is in use by another thread", id);
    forward.in_use = true;
    forward_ = &forward;
    return Status();
  }

  Status enter_unless_cancelled(kvc_forward id) {
    KVC_TRY(enter(id));
    if (__atomic_load_n(&forward_->cancelled, __ATOMIC_RELAXED) == 0) return Status();
    return Status::error(KVC_ERROR_CANCELLED, "forward %" PRIu64 " was cancelled", id);
  }

  // What the device said: any failure but a cancellation closes the step as abort.
  Status done(Status status) {
    broken_ = !status.ok() && status.code() != KVC_ERROR_CANCELLED;
    return status;
  }

  Forward& operator*() const { return *forward_; }
  Forward* operator->() const { return forward_; }

 private:
  Cache& cache_;
  Forward* forward_ = nullptr;
  bool broken_ = false;
};

}  // namespace kvc

// A StatelessScratch has the buffers of one stateless call. StatelessScratches keeps the scratches of a context for
// later calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "context/context.h"
#include "plan/work_plan.h"
#include "stateless/flash_attn_rows.h"

namespace kvc {

// Device memory that grows to the largest requested size. If it grows, its contents are lost.
class GrowingMemory {
 public:
  Status reserve(const std::shared_ptr<Context>& context, int64_t bytes) {
    if (bytes <= 0 || (memory_ && memory_->bytes() >= bytes)) return Status();
    return DeviceMemory::allocate(context, bytes, 64, false, &memory_);
  }
  void* data() const noexcept { return memory_ ? memory_->data() : nullptr; }

 private:
  std::shared_ptr<DeviceMemory> memory_;
};

struct StatelessScratch;

// The device memory of one call. On the CPU, this memory belongs to the scratch, and later calls may use it when the
// call has returned. Other backends lend memory to the call, because the work of the call runs later.
class CallMemory {
 public:
  CallMemory(std::shared_ptr<Context> context, void* stream) : context_(std::move(context)), stream_(stream) {}
  ~CallMemory() {
    kvc_error error = KVC_ERROR_INIT;
    if (lent_ != nullptr) context_->backend().give_scratch(context_->device(), lent_, stream_, &error);
  }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  // Takes `bytes` bytes. Must be called once. After that, `next` returns arrays in this memory.
  Status take(StatelessScratch& scratch, int64_t bytes);
  // Returns the bytes that an array of `count` elements takes, with padding.
  template <class T>
  static int64_t bytes_of(int64_t count) noexcept {
    return (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <class T>
  T* next(int64_t count) noexcept {
    char* const array = next_;
    next_ += bytes_of<T>(count);
    return reinterpret_cast<T*>(array);
  }

 private:
  static constexpr int64_t kAlignment = 64;
  const std::shared_ptr<Context> context_;
  void* const stream_;
  void* lent_ = nullptr;
  char* next_ = nullptr;
};

// Thread safety: none; one call at a time.
struct StatelessScratch {
  FlashAttnRows rows;
  std::unique_ptr<WorkPlan> plan;
  int64_t plan_items = 0, plan_tiles = 0;  // the largest numbers of items and tiles that `plan` has room for
  std::vector<int32_t> tile_counters;
  GrowingMemory memory;            // used by CallMemory on the CPU
  std::vector<int64_t> slots;      // used by kvc_append_slots
  std::vector<int32_t> rotations;  // used by kvc_append_slots
};

inline Status CallMemory::take(StatelessScratch& scratch, int64_t bytes) {
  if (bytes == 0) return Status();
  if (context_->is_host()) {
    KVC_TRY(scratch.memory.reserve(context_, bytes));
    next_ = static_cast<char*>(scratch.memory.data());
    return Status();
  }
  kvc_error error = KVC_ERROR_INIT;
  KVC_TRY(Status::from(context_->backend().take_scratch(context_->device(), bytes, stream_, &lent_, &error), error));
  next_ = static_cast<char*>(lent_);
  return Status();
}

// Thread safety: any thread.
class StatelessScratches {
 public:
  // Returns a scratch that is not in use, or a new one. Throws std::bad_alloc.
  std::unique_ptr<StatelessScratch> take() {
    {
      MutexLock lock(mutex_);
      for (auto& scratch : free_) {
        if (scratch) return std::move(scratch);
      }
    }
    return std::make_unique<StatelessScratch>();
  }
  // Keeps a scratch for later calls, or destroys it if there is no place for it in free_.
  void give(std::unique_ptr<StatelessScratch> scratch) noexcept {
    MutexLock lock(mutex_);
    for (auto& place : free_) {
      if (place) continue;
      place = std::move(scratch);
      return;
    }
  }

 private:
  Mutex mutex_;
  std::array<std::unique_ptr<StatelessScratch>, ThreadPool::kCallerSlots> free_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc

// StatelessScratch: what a stateless call computes in; StatelessScratches: those of a context, kept from call to call.
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

// Device memory that grows to the largest size asked for; its contents do not survive that.
class GrowingMemory {
 public:
  Status reserve(const std::shared_ptr<Context>& context, int64_t bytes) {
    if (bytes <= 0 || (memory_ && memory_->bytes() >= bytes)) return Status();
    return DeviceMemory::allocate(context, bytes, 64, false, &memory_);
  }
  float* data() const noexcept { return memory_ ? static_cast<float*>(memory_->data()) : nullptr; }

 private:
  std::shared_ptr<DeviceMemory> memory_;
};

// Thread safety: none; of one call at a time.
struct StatelessScratch {
  FlashAttnRows rows;
  std::unique_ptr<WorkPlan> plan;
  int64_t plan_items = 0, plan_tiles = 0;  // that it has room for
  std::vector<int32_t> tile_counters;
  GrowingMemory partials, query_cos_sin, new_cos_sin;
  std::vector<int64_t> slots;      // of kvc_append_slots
  std::vector<int32_t> rotations;  // of kvc_append_slots
};

// Thread safety: any.
class StatelessScratches {
 public:
  // One that nobody uses, or a new one. Throws std::bad_alloc.
  std::unique_ptr<StatelessScratch> take() {
    {
      MutexLock lock(mutex_);
      for (auto& scratch : free_) {
        if (scratch) return std::move(scratch);
      }
    }
    return std::make_unique<StatelessScratch>();
  }
  // Kept, unless enough are.
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

// Forward: the state of one open step. Its buffers are made when the cache is created and used again by every step.
//
// Thread safety: `generation`, `open` and `in_use` are guarded by the cache's lock. Everything else belongs to the
// thread that set in_use (one at a time), but for `cancelled`, which any thread may set.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/geometry.h"
#include "cache/rope_tables.h"
#include "context/context.h"
#include "plan/batch_plan.h"
#include "plan/work_plan.h"
#include "sequence/sequence_store.h"

namespace kvc {

// Layers whose work is cut alike, in one group: they share a WorkPlan.
struct WorkClass {
  int32_t group;
  WorkShape shape;
};

class Forward {
 public:
  // Throws std::bad_alloc; Status for device memory.
  static Status create(const std::shared_ptr<Context>& context, const Geometry& geometry,
                       const std::vector<WorkClass>& classes, std::unique_ptr<Forward>* out);

  // Host and device memory that create takes.
  static int64_t scratch_bytes(const Geometry& geometry, const std::vector<WorkClass>& classes);

  uint64_t generation = 0;
  bool open = false;
  bool in_use = false;
  int32_t cancelled = 0;  // read and written by __atomic builtins: a backend polls it

  // The batch.
  int32_t num_rows = 0;
  int32_t layer_begin = 0;
  int32_t layer_end = 0;
  bool trees = false;  // the batch has tree parents
  void* stream = nullptr;
  LazyArray<int32_t> slots;             // [rows]
  LazyArray<int32_t> append_lengths;    // [rows]
  LazyArray<int32_t> rope_sets;         // [rows]: longrope's factor set of each row
  LazyArray<Reservation> reservations;  // [rows, groups]
  std::unique_ptr<BatchPlan> batch;
  std::vector<uint8_t> layer_state;  // [layers]: kAppended | kAttended*
  int64_t info_shapes[2] = {0, 0};   // tokens, rows: what kvc_forward_info's tensors point to

  static constexpr uint8_t kAppended = 1;
  static constexpr uint8_t kAttendedPast = 2;
  static constexpr uint8_t kAttendedSelf = 4;

  std::span<const int32_t> row_slots() const noexcept { return {slots.data(), static_cast<size_t>(num_rows)}; }
  std::span<const int32_t> row_lengths() const noexcept {
    return {append_lengths.data(), static_cast<size_t>(num_rows)};
  }
  std::span<const Reservation> row_reservations(int32_t groups) const noexcept {
    return {reservations.data(), static_cast<size_t>(num_rows) * static_cast<size_t>(groups)};
  }
  std::span<Reservation> row_reservations(int32_t groups) noexcept {
    return {reservations.data(), static_cast<size_t>(num_rows) * static_cast<size_t>(groups)};
  }

  // Forgets what the last step had planned.
  void start() noexcept;
  // The plan of a work class, and the cos and sin of a rope class: made by the first layer that needs them. flags: the
  // call's KVC_ATTEND_*; a class keeps the plan of its last ones.
  const WorkPlan& work_plan(size_t work_class, uint32_t flags = 0) noexcept;
  Status cos_sin(const Context& context, const RopeTables& tables, size_t rope_class, const float** out);
  // Which table of the class each token turns by, once cos_sin made it; null: all by the first. [num_tokens]
  const int32_t* rope_sets_of(size_t rope_class) const noexcept {
    const LazyArray<int32_t>& sets = rotations_[rope_class].sets;
    return sets.size() > 0 ? sets.data() : nullptr;
  }

  int32_t* tile_counters() noexcept { return tile_counters_.data(); }
  float* partials() noexcept { return partials_ ? static_cast<float*>(partials_->data()) : nullptr; }

 private:
  struct Planned {
    WorkPlan plan;
    bool made = false;
    uint32_t flags = 0;  // that it was made for
  };
  struct Rotation {
    std::shared_ptr<DeviceMemory> cos_sin;  // [max tokens, 2, rope_dim / 2]
    LazyArray<int32_t> sets;                // [max tokens] if the class has several
    bool made = false;
  };
  void fill_token_sets(Rotation& rotation, int64_t long_from) noexcept;

  std::vector<Planned> plans_;       // [work classes]
  std::vector<Rotation> rotations_;  // [rope classes]
  std::vector<int32_t> tile_counters_;
  std::shared_ptr<DeviceMemory> partials_;
};

}  // namespace kvc

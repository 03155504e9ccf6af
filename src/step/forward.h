// Forward: the buffers of a Step. They hold its batch and index arrays, plans, cos and sin, and scratch. They are
// allocated with the cache, or with the graph of the step, and every step uses them again.
//
// Thread safety: none; a Forward belongs to its Step. But any thread may set `cancelled`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "context/context.h"
#include "context/device_step.h"
#include "layer/layers.h"
#include "plan/batch_plan.h"
#include "plan/step_array.h"
#include "plan/work_plan.h"
#include "sequence/sequence_store.h"
#include "step/forward_tables.h"
#include "step/latent_attend.h"
#include "step/layer_calls.h"

namespace kvc {

class Forward {
 public:
  // layers: one layer of each work class. Throws std::bad_alloc. Fails if device memory cannot be allocated.
  static Status create(const std::shared_ptr<Context>& context, const Geometry& geometry,
                       const std::vector<WorkClass>& classes, std::span<const kvc_backend_layer* const> layers,
                       std::unique_ptr<Forward>* out);

  // The approximate number of bytes of host and device memory for max_open_forwards Forwards, without LatentScratch.
  static int64_t scratch_bytes(const Context& context, const Geometry& geometry, const std::vector<WorkClass>& classes);

  // The state pages of one group, for all rows of the batch. Each array is [1 + draft states, rows]. An entry is a page
  // id or KVC_BACKEND_STATE_*. Index 0 has the pages before and after the step. Index 1 + i has the pages before and
  // after token i of each row.
  struct StatePages {
    int32_t group;
    StepArray<int32_t> before, after;
  };

  bool graph = false;     // a step of a graph: tensors of callers have limits.tokens or limits.rows rows
  int32_t cancelled = 0;  // accessed with __atomic builtins, because a backend polls it

  // The batch.
  int32_t num_rows = 0;
  StepKind kind;
  void* stream = nullptr;
  LazyArray<int32_t> slots;             // [rows]
  LazyArray<int32_t> append_lengths;    // [rows]
  LazyArray<int32_t> rope_sets;         // [rows]: longrope's factor set of each row
  LazyArray<Reservation> reservations;  // [rows, groups]
  std::vector<StatePages> state_pages;  // of each group of states
  std::unique_ptr<BatchPlan> batch;
  std::unique_ptr<LatentScratch> latent;  // null without MLA layers
  ForwardTables tables;                   // for other kernels, if the caller requested them
  LayerCalls calls;                       // which calls the step has run for each layer
  BatchLimits limits;                     // of the cache, or of the graph
  int64_t info_shapes[2] = {0, 0};        // tokens, rows: shapes of kvc_forward_info's tensors

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

  // Begins a step: drops the plans, calls and cancellation of the last step.
  void start() noexcept;
  // Sets the shapes that callers see, after the batch was built.
  void finish_batch() noexcept;
  // The plan of a work class. The first layer that needs the plan makes it. flags: KVC_ATTEND_* of the call.
  // listed_keys: see WorkPlan::build. A class keeps only the plan for the last flags and listed_keys.
  const WorkPlan& work_plan(size_t work_class, uint32_t flags = 0, int32_t listed_keys = WorkPlan::kNoLists) noexcept;
  // The same plan in the form that backends need. If the backend stages plans, the plan is staged once.
  Status plan(size_t work_class, uint32_t flags, int32_t listed_keys, const kvc_backend_plan** out);
  // Memory for kvc_backend_select.scratch; null if no layer has the flag KVC_LAYER_KEYS_ONLY.
  const DeviceMemory* select_scratch() const noexcept { return select_scratch_.get(); }
  // A plan with the rows and page lists of a class, without items.
  kvc_backend_plan plan_without_items(size_t work_class, uint32_t flags) noexcept;
  // cos and sin of a RoPE class. The first layer that needs them computes them.
  Status cos_sin(const Context& context, const RopeTables& tables, size_t rope_class, const float** out);
  // cos and sin for queries that attend to sinks of streaming windows. *out is null if no row has a streaming window
  // and, in a graph, no row of a later step can have one.
  Status cos_sin_sinks(const Context& context, const RopeTables& tables, size_t rope_class, const float** out);
  // Returns which table of the class rotates each token, [num_tokens], or null if the first table rotates all tokens.
  const int32_t* rope_sets_of(size_t rope_class) noexcept;

  // Sends the step's index arrays, and changed nodes of page lists, to a device that keeps copies of them. Also makes
  // and sends plans, unless the step appends to an encoder group. In a graph these are the plans of all classes.
  // Otherwise they are the plans of the classes that the last step used. Each plan has the flags and listed_keys of the
  // last plan of its class.
  Status stage(std::span<const kvc_backend_node_changes> changes);
  // Is called when a step closes. In a graph, recorded calls that are replayed before the next stage() then read and
  // write nothing.
  Status unstage();
  // Whether recorded calls may run in this step: it is a step of a graph, and the device replays calls.
  bool replayed() const noexcept { return graph && device_step_.get() != nullptr; }
  // The smallest number of rows that tensors of the step's calls may have. tensor_rows counts tokens, and state_rows
  // counts sequences. If calls may be replayed, both return the capacity of the graph, because later steps can be
  // larger.
  int64_t tensor_rows() const noexcept { return replayed() ? limits.tokens : batch->rows().num_tokens; }
  // The smallest number of rows that k and v may have in layers of a group.
  int64_t appended_rows(int32_t group) const noexcept {
    return replayed() ? limits.tokens : batch->num_appended(group);
  }
  int64_t state_rows() const noexcept { return replayed() ? limits.rows : num_rows; }
  // Where the pages for a token begin in the arrays of StatePages. token -1: the pages for the whole step.
  int64_t state_begin(int32_t token) const noexcept { return (token + 1) * (graph ? limits.rows : num_rows); }
  // The handle of the step for calls of the backend; null if the backend stages nothing.
  const kvc_backend_step* step() const noexcept { return device_step_.get(); }
  // MLA calls stage their plans with this object. These plans do not belong to a class.
  DeviceStep& device_step() noexcept { return device_step_; }

  // Device addresses of two arrays of the batch: the position of each token, and the index of the last token of each
  // row (kvc_forward_info.last_rows).
  void device_rows(const int32_t** positions, const int32_t** last_rows) const noexcept;

 private:
  struct Planned {
    WorkPlan work;
    int32_t group;
    const kvc_backend_layer* layer;            // one layer of the class
    kvc_backend_plan plan = {};                // of the last build
    int32_t listed_keys = WorkPlan::kNoLists;  // of the last build
    bool made = false;                         // in this step
    bool used = true;                          // used by a call of this step; true before the first step
  };
  struct Rotation {
    std::shared_ptr<DeviceMemory> cos_sin;        // [max tokens, 2, rope_dim / 2]
    std::shared_ptr<DeviceMemory> cos_sin_sinks;  // as cos_sin; null if sequences do not stream
    StepArray<int32_t> sets;                      // [max tokens] if the class has several tables
    int64_t long_from = INT64_MAX;                // RopeClass::long_from
    bool made = false;
    bool made_sinks = false;
    bool sets_made = false;
  };
  void make_plan(Planned& planned, uint32_t flags, int32_t listed_keys) noexcept;
  const int32_t* key_sets_of(const Planned& planned) noexcept;
  void point_to_device(Planned& planned) noexcept;
  void list_arrays(const void* device, bool by_capacity);
  Status create_device_step(const std::shared_ptr<Context>& context, const Geometry& geometry);
  Status rotate(const Context& context, const RopeTables& tables, size_t rope_class, const int32_t* positions,
                float* values);

  std::vector<Planned> plans_;       // [work classes]
  std::vector<Rotation> rotations_;  // [rope classes]
  std::vector<int32_t> tile_counters_;
  std::shared_ptr<DeviceMemory> partials_;
  std::shared_ptr<DeviceMemory> select_scratch_;
  DeviceStep device_step_;
  // Scratch of stage.
  ArrayList arrays_;
  std::vector<kvc_backend_plan*> staged_;
};

}  // namespace kvc

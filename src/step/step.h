// Step: one forward, from begin to end or abort. It checks and runs the calls within the step: append, attend and
// select for a layer, states, tables for other kernels, descriptions. After a Step is closed, it is used again for a
// later step. The Step of a graph has the same addresses in all steps of the graph.
//
// Thread safety: methods of the first section are called under the cache's lock. Methods of the second section are
// called by the thread that entered the step, one at a time, without a lock. Any thread may call cancel. Ownership: a
// Step owns its buffers, and borrows the cache's layers, which must exist longer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layer/layers.h"
#include "sequence/rope_sets.h"
#include "step/batch_arrays.h"
#include "step/forward.h"
#include "tensor/tensor_check.h"
#include "tier/load_progress.h"

namespace kvc {

class Step {
 public:
  static Status create(const Layers& layers, std::unique_ptr<Step>* out);
  // Makes the Step of a graph, whose tensors have the shapes of these limits. pages_per_row: the number of columns of
  // block tables; 0 = the number of pages of the group.
  static Status create_graph(const Layers& layers, const BatchLimits& limits, int32_t pages_per_row,
                             std::unique_ptr<Step>* out);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // ---- Under the cache's lock -------------------------------------------------------------------------------------

  bool is_open() const noexcept { return open_; }
  bool is_graph() const noexcept { return forward_->graph; }
  // The generation in the step's id. It changes with each step, but not between steps of a graph.
  uint64_t generation() const noexcept { return generation_; }
  void set_generation(uint64_t generation) noexcept { generation_ = generation; }
  // Whether a call is inside the step. enter returns false if another call is inside.
  bool in_use() const noexcept { return in_use_; }
  bool enter() noexcept {
    if (in_use_) return false;
    in_use_ = true;
    broken_ = false;
    return true;
  }
  void leave() noexcept { in_use_ = false; }
  // Whether a device call has failed, other than by a cancellation, since the last enter. Then the step cannot
  // continue.
  bool broken() const noexcept { return broken_; }
  void cancel() noexcept {
    __atomic_store_n(&forward_->cancelled, 1, __ATOMIC_RELAXED);
    for (const PendingLoad& load : pending_) load.progress->wake();
  }
  bool cancelled() const noexcept { return __atomic_load_n(&forward_->cancelled, __ATOMIC_RELAXED) != 0; }

  const BatchLimits& limits() const noexcept { return forward_->limits; }
  const StepKind& kind() const noexcept { return forward_->kind; }
  void* stream() const noexcept { return forward_->stream; }
  std::span<const int32_t> slots() const noexcept { return forward_->row_slots(); }
  std::span<const int32_t> lengths() const noexcept { return forward_->row_lengths(); }
  std::span<Reservation> reservations() noexcept { return forward_->row_reservations(layers_.num_groups()); }
  std::span<const Reservation> reservations() const noexcept {
    return std::as_const(*forward_).row_reservations(layers_.num_groups());
  }

  // Begins a step with a checked batch. slots: [rows].
  void start(StepKind kind, const BatchArrays& batch, std::span<const int32_t> slots, const RopeSets& rope_sets,
             void* stream) noexcept;
  // Opens the step after its pages were reserved. Writes its index arrays, and adds the nodes of its trees to the
  // store.
  void open(SequenceStore* store, const BatchArrays& batch) noexcept;
  // Sends the index arrays, and changed nodes of page lists, to a device that keeps copies of them.
  bool is_staged() const noexcept { return forward_->step() != nullptr; }
  Status stage(std::span<const kvc_backend_node_changes> changes);
  // Sets the device address of a group's node pool. Must be called before stage.
  void set_device_nodes(int32_t group, const int32_t* nodes) noexcept {
    forward_->batch->set_device_nodes(group, nodes);
  }
  // Makes the step's arrays and tables on the device stale, before the step is closed.
  Status unstage();
  // Checks that all layers in range have stored their tokens and states.
  Status check_complete() const;
  // Bit i is 1 if all layers in range have stored all their states after token i of each row.
  uint64_t stored_states() const noexcept;
  void close() noexcept;
  Status info(kvc_forward_info* out) const;
  // The time of a monotonic clock at which the step began.
  int64_t begin_ns() const noexcept { return begin_ns_; }
  void set_begin_ns(int64_t ns) noexcept { begin_ns_ = ns; }
  // The number of new tokens that the step has computed: 0 if it does not cover all layers, or if no call has attended.
  int64_t computed_tokens() const noexcept;
  // Whether a call has appended the step's tokens in a layer.
  bool appended(size_t layer) const noexcept { return forward_->calls.appended(layer); }

  // The loads that must fill layers before calls of this step may read them.
  struct PendingLoad {
    std::shared_ptr<LoadProgress> progress;
    bool waits;  // calls wait for layers
  };
  std::vector<PendingLoad>& pending() noexcept { return pending_; }

  // ---- For the thread that entered ----------------------------------------------------------------------------------

  // Checks that the pending loads have filled layers [begin, end), or waits for it.
  Status check_filled(int32_t begin, int32_t end) const;
  bool has_pending() const noexcept { return !pending_.empty(); }
  Status append(int32_t layer, const kvc_append_args& args);
  Status attend(int32_t layer, const kvc_attend_args& args);
  Status select(int32_t layer, const kvc_select_args& args);
  // Copies states of a recurrent layer, one for each row. If `store` is set, `tensor` has the states after a token of
  // each row, and is copied into the cache; token -1 = the last token. Otherwise the states before a token are copied
  // to `tensor`; token -1 = the first token.
  Status copy_state(int32_t layer, int32_t state, int32_t token, const DLTensor* tensor, bool store);
  Status tables(int32_t group, kvc_tables* out);
  Status describe(std::string* out);
  // Appends rows that were already checked.
  Status append_rows(int32_t layer, const KvRows& rows, bool as_stored);
  // Whether the step stores its tokens in a layer.
  bool appends(int32_t layer) const;

 private:
  // New K and V of a layer, after their checks.
  struct NewKv {
    KvRows rows = {};
    bool as_stored = false;
    const float* cos_sin = nullptr;  // from the caller; null = computed from the tokens' positions
  };

  Step(const Layers& layers, std::unique_ptr<Forward> forward) : layers_(layers), forward_(std::move(forward)) {
    if (limits().streaming) forward_->tables.streams().reserve(static_cast<size_t>(limits().rows));
  }
  const Context& context() const noexcept { return *layers_.context(); }
  // Returns the status of a device call. After a failure other than a cancellation, the step will be closed as by
  // abort.
  Status run(Status status) noexcept {
    broken_ = !status.ok() && status.code() != KVC_ERROR_CANCELLED;
    return status;
  }
  RowsSpec rows_spec(const char* name, int64_t tokens, int64_t heads, int64_t dims, bool written) const;

  // Whether rows of the layer's group are compressed rows. An append of such a layer has the rows that the step closes.
  // If the step closes no row, the layer needs no append.
  bool compresses(const Layer& layer) const noexcept { return layers_.rules(layer).compresses(); }
  bool has_appended(int32_t layer) const noexcept;
  // Whether queries of the step attend to encoder tokens, which earlier steps appended to this group.
  bool reads_encoder(int32_t group) const noexcept {
    return layers_.rules(group).holds_encoder() && forward_->kind.encoder_group < 0;
  }
  Status check_forward_layer(int32_t layer) const;
  Status check_appends(int32_t layer) const;
  Status check_kv(int32_t layer, const KvTensors& tensors, NewKv* out) const;
  Status check_rotation(int32_t layer, const DLTensor* cos_sin, const float** out) const;
  Status find_rotation(const kvc_backend_layer& layer, const float* given, const float** out);
  Status check_append(int32_t layer, const kvc_append_args& args, NewKv* out) const;
  Status run_append(int32_t layer, const NewKv& kv);
  Status check_attends(int32_t layer, const kvc_attend_args& args) const;
  Status check_outputs(int32_t layer, const LatentCall& call, const KvRows& kv, int64_t tokens) const;
  Status check_biases(int32_t layer, const kvc_attend_args& args, const LatentCall& call, kvc_backend_bias* out) const;
  Status check_lists(int32_t layer, const kvc_attend_args& args, int64_t tokens, kvc_backend_lists* out) const;
  Status check_attend(int32_t layer, const kvc_attend_args& args, LatentCall* call, NewKv* kv) const;
  Status run_attend(int32_t layer, LatentCall* call);
  Status check_selects(int32_t layer, const kvc_select_args& args) const;
  Status check_select(int32_t layer, const kvc_select_args& args, kvc_backend_select* out) const;
  Status run_select(int32_t layer, kvc_backend_select* select);
  Status check_tables(int32_t group, const kvc_tables& wanted) const;
  std::string describe_group(int32_t group);
  void find_state_pages(const SequenceStore& store, std::span<const int32_t> parents) noexcept;
  uint64_t last_tokens() const noexcept;

  const Layers& layers_;
  const std::unique_ptr<Forward> forward_;
  uint64_t generation_ = 0;
  int64_t begin_ns_ = 0;
  bool open_ = false;
  bool in_use_ = false;
  bool broken_ = false;
  std::vector<PendingLoad> pending_;
};

}  // namespace kvc

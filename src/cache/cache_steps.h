// CacheSteps: forwards and graphs: begin, end, abort, cancel, and calls within a forward. Methods of a Step run kernels
// outside the lock (in_step). A graph has one step with its own buffers. cache_graphs.cc has the methods for graphs.
//
// Ownership: owns the mirrors, which are the device's copies of page lists.
#pragma once

#include <span>
#include <vector>

#include "cache/cache_core.h"
#include "context/device_step.h"
#include "step/batch_arrays.h"

namespace kvc {

class CacheSteps {
 public:
  explicit CacheSteps(CacheCore* core);
  // Creates the steps and the mirrors. Must be called once, before any other call.
  Status prepare();

  Status can_fit(const kvc_batch& batch);
  Status begin(const kvc_batch& batch, void* stream, kvc_forward* out);
  Status end(kvc_forward id);
  Status abort(kvc_forward id);
  Status cancel(kvc_forward id);
  Status info(kvc_forward id, kvc_forward_info* out);
  // Runs body(step) outside the lock. If another call is in the same step, returns BUSY. even_cancelled: run body even
  // if the step was cancelled.
  template <class Body>
  Status in_step(kvc_forward id, bool even_cancelled, Body body) {
    Step* step = nullptr;
    KVC_TRY(enter_step(id, even_cancelled, &step));
    const struct Leaving {
      CacheSteps& steps;
      Step& step;
      ~Leaving() { steps.leave_step(step); }
    } leaving{*this, *step};
    return body(*step);
  }

  // The same for a body that reads a layer, which pending loads must have filled. If the layer does not exist, the body
  // reports this.
  template <class Body>
  Status in_layer(kvc_forward id, int32_t layer, Body body) {
    return in_step(id, false, [&](Step& step) -> Status {
      if (step.has_pending() && layer >= 0 && layer < core_.layers.size()) KVC_TRY(await(step, layer, layer + 1));
      return body(step);
    });
  }
  // The same for the layers of a group.
  template <class Body>
  Status in_group(kvc_forward id, int32_t group, bool even_cancelled, Body body) {
    return in_step(id, even_cancelled, [&](Step& step) -> Status {
      for (int32_t i = 0; step.has_pending() && i < core_.layers.size(); ++i) {
        if (core_.layers[i].group == group) KVC_TRY(await(step, i, i + 1));
      }
      return body(step);
    });
  }

  Status create_graph(const kvc_graph_config& config, kvc_forward* out);
  Status destroy_graph(kvc_forward id);

 private:
  static constexpr int32_t kMaxGraphs = 64;

  uint64_t step_id(int32_t index) const KVC_REQUIRES(core_.mutex);
  Status resolve_step(kvc_forward id, Step** step) const KVC_REQUIRES(core_.mutex);
  // Finds the index of a graph. The graph may have an open step.
  Status resolve_graph(kvc_forward id, int32_t* index) const KVC_REQUIRES(core_.mutex);
  Status find_step(kvc_forward graph, int32_t* index) const KVC_REQUIRES(core_.mutex);
  Status enter_step(kvc_forward id, bool even_cancelled, Step** step);
  void leave_step(Step& step) noexcept;
  Status await(Step& step, int32_t begin, int32_t end);
  Status await_all(kvc_forward id);
  Status find_pending(Step* step) KVC_REQUIRES(core_.mutex);
  Status check_no_compressed_group(const char* what) const;
  Status read_kind(const kvc_batch& batch, StepKind* out) const KVC_REQUIRES(core_.mutex);
  Status check_batch(const kvc_batch& batch, StepKind* kind, int32_t* index) KVC_REQUIRES(core_.mutex);
  Status stage(Step& step) KVC_REQUIRES(core_.mutex);
  // If the step's stream is being captured (ORDER), the step stays open. After any other failure, the step is closed,
  // as by abort.
  Status close(Step& step, bool keep) KVC_REQUIRES(core_.mutex);
  void give_back(Step& step, bool keep) KVC_REQUIRES(core_.mutex);
  Status create_mirrors() KVC_REQUIRES(core_.mutex);

  CacheCore& core_;
  const IdLayout ids_;
  uint64_t graphs_made_ KVC_GUARDED_BY(core_.mutex) = 0;
  std::vector<NodeMirror> mirrors_;  // [groups]; empty for a group without a mirror (create_mirrors)
  // Scratch of begin and can_fit, allocated once.
  BatchArrays batch_ KVC_GUARDED_BY(core_.mutex);
  std::vector<int32_t> slots_ KVC_GUARDED_BY(core_.mutex);  // [max_sequences]: the slot of each row's sequence
  std::vector<kvc_backend_node_changes> node_changes_ KVC_GUARDED_BY(core_.mutex);
};

}  // namespace kvc

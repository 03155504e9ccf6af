// Cache: the one class that knows all parts. It owns the lock, the sequences, the pools and the open steps, and answers
// each public call: control plane under the lock, compute outside it.
//
// Thread safety: any method from any thread; the destructor alone. Ownership: keeps its context alive; shares pools
// with exported views. Invariants
//   1. A step's sequences are busy from begin to end or abort, so the page lists that its compute reads do not change.
//   2. A method that fails has changed nothing (a device error in append or attend closes the step as abort).
//   3. Forward::in_use is set for exactly the calls that are inside that step.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cache/rope_sets.h"
#include "context/device_step.h"
#include "context/stream_order.h"
#include "layer/geometry.h"
#include "layer/layer_storage.h"
#include "layer/rope_tables.h"
#include "sequence/copy_queue.h"
#include "step/batch_arrays.h"
#include "step/forward.h"
#include "tensor/tensor_check.h"

namespace kvc {

class Cache {
 public:
  static Status create(std::shared_ptr<Context> context, const CacheConfig& config, std::unique_ptr<Cache>* out);
  static Status estimate(const Context& context, const CacheConfig& config, int32_t group, kvc_estimate* out);

  ~Cache();

  // DEVICE_FAILED once the device has failed for good, or its order of the cache's work is lost: nothing works any
  // more.
  Status check_usable() const;

  // Sequences (cache.cc)
  Status add(std::span<kvc_seq> out);
  Status remove(std::span<const kvc_seq> ids);
  Status fork(std::span<const kvc_seq> parents, std::span<const int64_t> positions, std::span<kvc_seq> children,
              void* stream);
  Status truncate(std::span<const kvc_seq> ids, std::span<const int64_t> lengths);
  Status clear();
  Status lengths(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status pages(kvc_seq id, int32_t group, std::span<int32_t> out, int64_t* count);
  Status nearest_position(kvc_seq id, int64_t position, int64_t* before, int64_t* after);
  Status set_rope(std::span<const kvc_seq> ids, int32_t set);
  Status set_streaming(std::span<const kvc_seq> ids, std::span<const int64_t> sinks, std::span<const int64_t> windows,
                       uint32_t flags);
  Status streaming(std::span<const kvc_seq> ids, std::span<int64_t> sinks, std::span<int64_t> windows);
  Status max_append(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status commit(std::span<const kvc_seq> ids, std::span<const int32_t> leaves, void* stream);
  Status tree_nodes(std::span<const kvc_seq> ids, std::span<int32_t> out);
  Status checkpoint(std::span<const kvc_seq> ids);
  Status encoder_lengths(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out);
  // All copies that wait, if they fit; an empty `out` takes none. count: how many there are. (cache_copies.cc)
  Status take_copies(std::span<kvc_copy> out, int64_t* count);

  // Steps (cache_begin.cc, cache_forward.cc, cache_states.cc, cache_tables.cc)
  Status can_fit(const kvc_batch& batch);
  Status begin(const kvc_batch& batch, void* stream, kvc_forward* out);
  Status append(kvc_forward id, int32_t layer, const kvc_append_args& args);
  Status attend(kvc_forward id, int32_t layer, const kvc_attend_args& args);
  Status copy_state(kvc_forward id, int32_t layer, int32_t state, const DLTensor* tensor, bool store);
  Status end(kvc_forward id);
  Status abort(kvc_forward id);
  Status cancel(kvc_forward id);
  Status info(kvc_forward id, kvc_forward_info* out);
  Status describe(kvc_forward id, std::string* out);
  Status tables(kvc_forward id, int32_t group, kvc_tables* out);

  // Graphs (cache_graphs.cc)
  Status create_graph(const kvc_graph_config& config, kvc_forward* out);
  Status destroy_graph(kvc_forward id);

  // Tensors (cache_tensors.cc)
  Status export_pool(int32_t layer, int32_t pool, uint32_t flags, DLManagedTensorVersioned** out, void* stream);
  Status export_sequence(kvc_seq id, const kvc_export_args& args, kvc_exported* out, void* stream);
  Status import_sequence(kvc_seq id, const kvc_import_args& args, void* stream);

  // Audit (cache.cc)
  Status stats(int32_t group, kvc_stats* out);
  uint64_t digest();
  Status check_invariants();

 private:
  struct Layer {
    std::shared_ptr<LayerStorage> storage;  // of the layer that it reads, if it has none
    kvc_backend_layer backend = {};
    int32_t group = 0;
    int32_t kv_layer = -1;                 // the layer whose K and V it reads; -1 = its own
    std::shared_ptr<DeviceMemory> states;  // of a recurrent layer, which has nothing else: [pages] of its states
    size_t work_class = 0;
  };
  struct ExportParts;
  // Marks a step as in use by this call, and as free again at the end.
  class ForwardUse;

  Cache(std::shared_ptr<Context> context, Geometry geometry, uint32_t tag);
  static void plan_classes(const Context& context, const Geometry& geometry, std::vector<WorkClass>* classes,
                           std::vector<size_t>* class_of_layer);
  Status check_layer(int32_t layer) const;
  Status check_group(int32_t group, bool all_allowed) const;
  int32_t num_groups() const noexcept { return static_cast<int32_t>(geometry_.store.groups.size()); }
  RowsSpec rows_spec(const char* name, int64_t tokens, int64_t heads, int64_t dims, bool written) const;

  // Copies of tokens: made (cache.cc), or without storage handed over (cache_copies.cc).
  Status copy_slots(std::span<const SlotCopy> copies, void* stream, bool* begun = nullptr) KVC_REQUIRES(mutex_);
  Status copy_layers(std::span<const SlotCopy> copies, void* stream, bool* begun) KVC_REQUIRES(mutex_);
  Status check_copies_taken() const KVC_REQUIRES(mutex_);
  Status make_room_for_copies(int64_t more) KVC_REQUIRES(mutex_);
  Status check_has_storage(int32_t layer) const;

  uint64_t forward_id(int32_t slot) const KVC_REQUIRES(mutex_);
  Status resolve_forward(kvc_forward id, int32_t* slot) const KVC_REQUIRES(mutex_);
  // Slot of a graph, whether or not a step is open in it.
  Status resolve_graph(kvc_forward id, int32_t* slot) const KVC_REQUIRES(mutex_);
  Status find_forward(kvc_forward graph, int32_t* slot) const KVC_REQUIRES(mutex_);
  // Open steps, graphs' too.
  template <class Visit>
  void for_each_open(Visit visit) const {
    for (const auto& forward : forwards_) {
      if (forward && forward->open) visit(*forward);
    }
  }
  Status read_kind(const kvc_batch& batch, StepKind* out) const KVC_REQUIRES(mutex_);
  Status check_batch(const kvc_batch& batch, std::span<int32_t> slots, StepKind* kind, int32_t* forward)
      KVC_REQUIRES(mutex_);
  // ORDER: the step's stream is being captured, and it stays open. Another failure closes it as abort.
  Status close(Forward& forward, bool keep) KVC_REQUIRES(mutex_);
  void give_back(Forward& forward, bool keep) KVC_REQUIRES(mutex_);
  Status create_mirrors();
  Status stage(Forward& forward) KVC_REQUIRES(mutex_);

  const GroupRules& rules(const Layer& layer) const noexcept {
    return geometry_.store.groups[static_cast<size_t>(layer.group)].rules;
  }
  Status check_forward_layer(const Forward& forward, int32_t layer) const;
  Status check_appends(const Forward& forward, int32_t layer) const;
  Status check_attends(const Forward& forward, int32_t layer, const kvc_attend_args& args) const;
  bool appends(const Forward& forward, int32_t layer) const;
  Status check_complete(const Forward& forward) const;
  void find_state_pages(Forward& forward) KVC_REQUIRES(mutex_);
  std::string describe_group(Forward& forward, int32_t group) const;
  Status check_tables(const Forward& forward, int32_t group, const kvc_tables& wanted) const;
  // A layer's new K and V, checked.
  struct NewKv {
    KvRows rows = {};
    bool as_stored = false;
    const float* cos_sin = nullptr;  // the caller's, or null: by position
  };
  Status run_append(Forward& forward, int32_t layer, const NewKv& kv);
  Status run_attend(Forward& forward, int32_t layer, LatentCall* call);
  Status check_outputs(int32_t layer, const LatentCall& call, const KvRows& kv, int64_t tokens) const;
  Status check_kv(const Forward& forward, int32_t layer, const KvTensors& tensors, NewKv* out) const;
  bool on_read(const kvc_backend_layer& layer) const;
  Status check_rotation(const Forward& forward, int32_t layer, const DLTensor* cos_sin, const float** out) const;
  Status find_rotation(Forward& forward, const kvc_backend_layer& layer, const float* given, const float** out) const;
  Status check_stores_kv(int32_t layer) const;
  Status find_slots(int32_t slot, int32_t layer, int64_t begin, int64_t end, std::vector<int64_t>* slots) const
      KVC_REQUIRES(mutex_);
  Status gather(int32_t layer, const std::vector<int64_t>& slots, ExportParts* parts, void* stream) const;
  Status check_import(const kvc_import_args& args, std::vector<KvRows>* rows, int64_t* tokens) const;

  const std::shared_ptr<Context> context_;
  const Geometry geometry_;
  const IdLayout forward_ids_;
  std::vector<Layer> layers_;
  std::vector<WorkClass> work_classes_;
  RopeTables rope_tables_;

  std::vector<const kvc_backend_layer*> class_layers_;  // [work classes]: a layer of each

  Mutex mutex_;
  SequenceStore store_ KVC_GUARDED_BY(mutex_);
  RopeSets rope_sets_ KVC_GUARDED_BY(mutex_);
  static constexpr int32_t kMaxGraphs = 64;
  std::vector<std::unique_ptr<Forward>>
      forwards_;  // [max_open_forwards], then those of graphs, null where there is none
  uint64_t graphs_made_ KVC_GUARDED_BY(mutex_) = 0;
  // Scratch of the calls under the lock: [max_sequences] and [max_sequences * groups], made once; a commit that
  // copies more makes the latter two larger before it changes anything.
  std::vector<int32_t> checked_slots_ KVC_GUARDED_BY(mutex_);
  BatchArrays batch_ KVC_GUARDED_BY(mutex_);  // of the call that begins a step, or asks whether one fits
  std::vector<SlotCopy> copies_ KVC_GUARDED_BY(mutex_);
  std::vector<kvc_backend_slot_copy> layer_copies_ KVC_GUARDED_BY(mutex_);
  CopyQueue copy_queue_ KVC_GUARDED_BY(mutex_);  // of a cache without storage
  StreamOrder order_;                            // guarded but for check
  std::vector<NodeMirror> mirrors_;              // [groups]; empty handles where the device reads the host's page lists
  std::vector<kvc_backend_node_changes> node_changes_ KVC_GUARDED_BY(mutex_);
};

}  // namespace kvc

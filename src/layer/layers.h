// Layers holds all that is fixed when a cache is created: the geometry of the cache, the pools of each layer, the
// tables of the RoPE classes, and the classes of layers whose work is cut in the same way. The cache and its steps
// share it.
//
// Thread safety: does not change after create, except in take_ownership. Ownership: keeps the context alive; shares
// pools with exported views.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "layer/geometry.h"
#include "layer/layer_storage.h"
#include "layer/rope_tables.h"

namespace kvc {

struct Layer {
  std::shared_ptr<LayerStorage> storage;  // its own, or that of the layer whose K and V it reads
  kvc_backend_layer backend = {};
  int32_t group = 0;
  int32_t kv_layer = -1;                 // the layer whose K and V it reads; -1 = its own
  std::shared_ptr<DeviceMemory> states;  // [pages]: the states of a recurrent layer, which has no storage
  size_t work_class = 0;
};

// Layers of one group whose work is cut in the same way. They share a WorkPlan.
struct WorkClass {
  int32_t group;
  WorkShape shape;
};

class Layers {
 public:
  // Allocates the pools, or checks the pools of the caller, who owns them until take_ownership.
  static Status create(std::shared_ptr<Context> context, Geometry geometry, std::unique_ptr<Layers>* out);
  // The work classes of a geometry. class_of_layer (nullable) gets the class of each layer, or SIZE_MAX for a layer
  // to which no call attends.
  static std::vector<WorkClass> classes_of(const Context& context, const Geometry& geometry,
                                           std::vector<size_t>* class_of_layer);
  void take_ownership() noexcept;

  const std::shared_ptr<Context>& context() const noexcept { return context_; }
  const Geometry& geometry() const noexcept { return geometry_; }
  const LayerGeometry& geometry(int32_t layer) const noexcept { return geometry_.layers[static_cast<size_t>(layer)]; }
  const RopeTables& rope_tables() const noexcept { return rope_tables_; }
  int32_t size() const noexcept { return static_cast<int32_t>(layers_.size()); }
  const Layer& operator[](int32_t layer) const noexcept { return layers_[static_cast<size_t>(layer)]; }
  auto begin() const noexcept { return layers_.begin(); }
  auto end() const noexcept { return layers_.end(); }
  int32_t num_groups() const noexcept { return static_cast<int32_t>(geometry_.store.groups.size()); }
  const GroupRules& rules(int32_t group) const noexcept {
    return geometry_.store.groups[static_cast<size_t>(group)].rules;
  }
  const GroupRules& rules(const Layer& layer) const noexcept { return rules(layer.group); }
  const std::vector<WorkClass>& work_classes() const noexcept { return work_classes_; }
  // [work classes]: one layer of each class.
  std::span<const kvc_backend_layer* const> class_layers() const noexcept { return class_layers_; }
  // Whether a layer's keys are stored without rotation, and rotated when they are read.
  bool rotates_on_read(const kvc_backend_layer& layer) const noexcept {
    return layer.rope_class >= 0 && rope_tables_.rope(static_cast<size_t>(layer.rope_class)).on_read;
  }

  Status check_layer(int32_t layer) const;
  // all_allowed: whether `group` may be -1, which means all groups.
  Status check_group(int32_t group, bool all_allowed) const;
  Status check_has_storage(int32_t layer) const;
  Status check_stores_kv(int32_t layer) const;

 private:
  Layers(std::shared_ptr<Context> context, Geometry geometry)
      : context_(std::move(context)), geometry_(std::move(geometry)) {}
  Status create_layer(int32_t index, size_t work_class);

  const std::shared_ptr<Context> context_;
  const Geometry geometry_;
  std::vector<Layer> layers_;
  std::vector<WorkClass> work_classes_;
  std::vector<const kvc_backend_layer*> class_layers_;
  RopeTables rope_tables_;
};

}  // namespace kvc

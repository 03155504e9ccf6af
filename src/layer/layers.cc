#include "layer/layers.h"

#include <algorithm>
#include <cinttypes>

#include "kernels/common/stored_format.h"
#include "plan/work_shape.h"
#include "system/host_memory.h"

namespace kvc {
namespace {

// Refuses pools that are larger than the host's memory. The system would grant each allocation, because it does not add
// up the allocations. It would kill the process when the pools are used. A device needs no check: its driver refuses
// the allocation.
Status check_host_memory(const Context& context, const Geometry& geometry) {
  if (!context.is_host()) return Status();
  int64_t wanted = 0;
  for (const LayerGeometry& layer : geometry.layers) {
    const bool adopted = layer.kv_storage != nullptr || layer.k_storage != nullptr;
    if (adopted || (geometry.tables_only && layer.states.empty())) continue;
    wanted += layer.page_bytes * geometry.store.groups[static_cast<size_t>(layer.group)].num_pages;
  }
  const int64_t available = host_memory_bytes();
  if (wanted <= available) return Status();
  return Status::error(KVC_ERROR_OUT_OF_MEMORY,
                       "the pools of %zu layers take %" PRId64 " bytes, and the host has %" PRId64
                       " bytes of memory and swap",
                       geometry.layers.size(), wanted, available)
      .missing(wanted, available);
}

WorkShape work_shape(const Context& context, const Geometry& geometry, const LayerGeometry& layer) {
  kvc_backend_tiling tiling = {};
  context.backend().tiling(context.device(), &layer.layer, &tiling);
  WorkShape shape = work_shape_of(layer.layer, tiling, context.parallel_items(tiling));
  const GroupRules& rules = geometry.store.groups[static_cast<size_t>(layer.group)].rules;
  shape.streaming = geometry.limits.streaming && rules.streams();
  shape.by_position = rules.compresses();
  shape.sharing = geometry.sharing;
  if (geometry.deterministic) shape.fix_splits();
  if (layer.layer.rope_class >= 0) {
    const RopeClass& rope = geometry.rope_classes[static_cast<size_t>(layer.layer.rope_class)];
    if (rope.on_read && rope.sets.size() > 1) shape.key_sets_class = layer.layer.rope_class;
  }
  return shape;
}

}  // namespace

std::vector<WorkClass> Layers::classes_of(const Context& context, const Geometry& geometry,
                                          std::vector<size_t>* class_of_layer) {
  std::vector<WorkClass> classes;
  for (const LayerGeometry& layer : geometry.layers) {
    size_t index = SIZE_MAX;
    if (layer.states.empty() && !kernels::keys_only(layer.layer)) {
      const WorkShape shape = work_shape(context, geometry, layer);
      const auto known = std::find_if(classes.begin(), classes.end(),
                                      [&](const WorkClass& c) { return c.group == layer.group && c.shape == shape; });
      index = static_cast<size_t>(known - classes.begin());
      if (known == classes.end()) classes.push_back({layer.group, shape});
    }
    if (class_of_layer != nullptr) class_of_layer->push_back(index);
  }
  return classes;
}

Status Layers::create(std::shared_ptr<Context> context, Geometry geometry, std::unique_ptr<Layers>* out) {
  KVC_TRY(check_host_memory(*context, geometry));
  std::unique_ptr<Layers> layers(new Layers(std::move(context), std::move(geometry)));
  std::vector<size_t> class_of_layer;
  layers->work_classes_ = classes_of(*layers->context_, layers->geometry_, &class_of_layer);
  layers->layers_.reserve(class_of_layer.size());
  for (size_t i = 0; i < class_of_layer.size(); ++i) {
    KVC_TRY(layers->create_layer(static_cast<int32_t>(i), class_of_layer[i]));
  }
  std::vector<std::shared_ptr<LayerStorage>> storages;
  for (const Layer& layer : layers->layers_) storages.push_back(layer.kv_layer < 0 ? layer.storage : nullptr);
  KVC_TRY(check_pools_apart(storages));
  layers->class_layers_.resize(layers->work_classes_.size());
  for (size_t i = layers->layers_.size(); i-- > 0;) {
    const Layer& layer = layers->layers_[i];
    if (layer.work_class != SIZE_MAX) layers->class_layers_[layer.work_class] = &layer.backend;
  }
  KVC_TRY(RopeTables::create(layers->context_, layers->geometry_.rope_classes, &layers->rope_tables_));
  *out = std::move(layers);
  return Status();
}

Status Layers::create_layer(int32_t index, size_t work_class) {
  const LayerGeometry& of = geometry(index);
  Layer layer;
  layer.group = of.group;
  layer.kv_layer = of.kv_layer;
  layer.work_class = work_class;
  if (layer.kv_layer >= 0) {
    const Layer& source = (*this)[layer.kv_layer];
    layer.storage = source.storage;
    layer.backend = of.layer;
    layer.backend.k = source.backend.k;
    layer.backend.v = source.backend.v;
    layer.backend.k_scales = source.backend.k_scales;
    layer.backend.v_scales = source.backend.v_scales;
  } else if (!of.states.empty()) {
    KVC_TRY(DeviceMemory::allocate(context_, of.page_bytes * of.layer.num_pages, DeviceMemory::kPageAlignment, true,
                                   &layer.states));
  } else if (geometry_.tables_only) {
    layer.backend = of.layer;
  } else {
    KVC_TRY(LayerStorage::create(context_, of, index, &layer.storage));
    layer.backend = layer.storage->layer();
  }
  layers_.push_back(std::move(layer));
  return Status();
}

void Layers::take_ownership() noexcept {
  for (Layer& layer : layers_) {
    if (layer.storage) layer.storage->take_ownership();
  }
}

Status Layers::check_layer(int32_t layer) const {
  if (layer >= 0 && layer < size()) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %d is outside [0, %d)", layer, size()).at(layer);
}

Status Layers::check_group(int32_t group, bool all_allowed) const {
  if (group >= (all_allowed ? -1 : 0) && group < num_groups()) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "group %d is outside [%d, %d)", group, all_allowed ? -1 : 0,
                       num_groups());
}

Status Layers::check_has_storage(int32_t layer) const {
  if (!geometry_.tables_only) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "layer %d has no storage: the cache has tables only (KVC_STORAGE_NONE)",
                       layer)
      .at(layer);
}

Status Layers::check_stores_kv(int32_t layer) const {
  if (!(*this)[layer].states) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "layer %d is recurrent: it has states, and no K and V", layer).at(layer);
}

}  // namespace kvc

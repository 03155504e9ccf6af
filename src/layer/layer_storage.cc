#include "layer/layer_storage.h"

#include <algorithm>
#include <cinttypes>

#include "layer/page_layout.h"
#include "tensor/pool_overlap.h"
#include "tensor/tensor_check.h"

namespace kvc {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSmallAlignment = 4096;

}  // namespace

Status check_storage(const kvc_layer_config& config, DLDataType dtype, int64_t index) {
  const bool apart = config.k_storage != nullptr || config.v_storage != nullptr;
  if (config.latent_dim != 0 && (config.kv_storage != nullptr || config.v_storage != nullptr)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": storage of an MLA group is k_storage alone",
                         index)
        .at(index);
  }
  if (config.latent_dim == 0 && apart &&
      (config.kv_storage != nullptr || config.k_storage == nullptr || config.v_storage == nullptr)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": storage is kv_storage alone, or k_storage with v_storage", index)
        .at(index);
  }
  if (dtype.code == kDLInt && (apart || config.kv_storage != nullptr)) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %" PRId64 ": pages of int8 hold scales, and the library lays them out: no storage",
                         index)
        .at(index);
  }
  if (config.kv_storage != nullptr && config.v_head_dim != 0 && config.v_head_dim != config.head_dim) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": kv_storage needs v_head_dim %d to be head_dim %d", index,
                         config.v_head_dim, config.head_dim)
        .at(index);
  }
  return Status();
}

Status check_storages(const std::vector<LayerGeometry>& layers, bool tables_only) {
  std::vector<const DLManagedTensorVersioned*> seen;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto* storage : {layers[i].kv_storage, layers[i].k_storage, layers[i].v_storage}) {
      if (storage == nullptr) continue;
      if (tables_only) {
        return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %zu: a storage is given, with KVC_STORAGE_NONE", i)
            .at(static_cast<int64_t>(i));
      }
      if (std::find(seen.begin(), seen.end(), storage) != seen.end()) {
        return Status::error(KVC_ERROR_DUPLICATE, "layer %zu: its storage is given twice", i)
            .at(static_cast<int64_t>(i));
      }
      seen.push_back(storage);
    }
  }
  return Status();
}

LayerStorage::LayerStorage(std::shared_ptr<Context> context, const LayerGeometry& geometry)
    : context_(std::move(context)), layer_(geometry.layer) {}

LayerStorage::~LayerStorage() {
  if (!owned_) return;
  for (DLManagedTensorVersioned* tensor : adopted_) {
    if (tensor != nullptr && tensor->deleter != nullptr) tensor->deleter(tensor);
  }
}

Status LayerStorage::create(const std::shared_ptr<Context>& context, const LayerGeometry& geometry, int64_t index,
                            std::shared_ptr<LayerStorage>* out) {
  std::shared_ptr<LayerStorage> storage(new LayerStorage(context, geometry));
  const bool adopted = geometry.kv_storage != nullptr || geometry.k_storage != nullptr;
  KVC_TRY(adopted ? storage->adopt(geometry, index) : storage->allocate(geometry));
  if (adopted) storage->tell_alignment(index);
  if (!geometry.k_scales.empty()) KVC_TRY(storage->allocate_head_scales(geometry));
  if (kvc_backend_layer& layer = storage->layer_; layer.v_in_k != 0) {
    layer.v = layer.k;
    layer.v_scales = layer.k_scales;
  }
  *out = std::move(storage);
  return Status();
}

// As page_layout says: HND.
Status LayerStorage::allocate(const LayerGeometry& geometry) {
  const int64_t bytes = geometry.page_bytes * layer_.num_pages;
  const bool huge = bytes >= 2 * kHugePage;
  KVC_TRY(DeviceMemory::allocate(context_, bytes, huge ? kHugePage : kSmallAlignment, huge, &memory_));
  const PageLayout layout = page_layout(layer_);
  const int64_t element_bytes = layer_.dtype.bits / 8;
  const int64_t page_size = layer_.page_size;
  together_ = layout.together;
  k_to_v_ = layout.v.offset_bytes / element_bytes;
  auto* base = static_cast<char*>(memory_->data());
  const auto pool = [&](const PoolLayout& p, int32_t dims) {
    return kvc_backend_pool{base + p.offset_bytes, p.page_bytes / element_bytes, page_size * dims, dims};
  };
  const auto scales = [&](const PoolLayout& p) {
    return kvc_backend_scales{reinterpret_cast<float*>(base + p.scales_offset_bytes),
                              p.page_bytes / int64_t{sizeof(float)}, page_size, 1};
  };
  layer_.k = pool(layout.k, layer_.head_dim);
  layer_.v = pool(layout.v, layer_.v_head_dim);
  if (!layout.token_scales) return Status();
  layer_.k_scales = scales(layout.k);
  layer_.v_scales = scales(layout.v);
  return Status();
}

Status LayerStorage::allocate_head_scales(const LayerGeometry& geometry) {
  const int64_t heads = layer_.num_kv_heads;
  const int64_t bytes = 2 * heads * int64_t{sizeof(float)};
  KVC_TRY(DeviceMemory::allocate(context_, bytes, kSmallAlignment, false, &head_scales_));
  auto* data = static_cast<float*>(head_scales_->data());
  std::vector<float> both = geometry.k_scales;
  both.insert(both.end(), geometry.v_scales.begin(), geometry.v_scales.end());
  KVC_TRY(context_->upload_now(data, both.data(), bytes));
  layer_.k_scales = {data, 0, 1, 0};
  layer_.v_scales = {data + heads, 0, 1, 0};
  return Status();
}

Status LayerStorage::adopt(const LayerGeometry& geometry, int64_t index) {
  const DLDevice device = context_->dl_device();
  const auto data = [](const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; };
  int64_t strides[5];
  if (geometry.kv_storage != nullptr) {
    const int64_t shape[5] = {layer_.num_pages, 2, layer_.num_kv_heads, layer_.page_size, layer_.head_dim};
    KVC_TRY(check_pool(*geometry.kv_storage, "kv_storage", index, device, layer_.dtype, 5, shape, strides));
    together_ = true;
    k_to_v_ = strides[1];
    char* base = data(geometry.kv_storage->dl_tensor);
    layer_.k = {base, strides[0], strides[2], strides[3]};
    layer_.v = {base + k_to_v_ * (layer_.dtype.bits / 8), strides[0], strides[2], strides[3]};
    adopted_[0] = geometry.kv_storage;
    return Status();
  }
  int64_t shape[4] = {layer_.num_pages, layer_.num_kv_heads, layer_.page_size, layer_.head_dim};
  KVC_TRY(check_pool(*geometry.k_storage, "k_storage", index, device, layer_.dtype, 4, shape, strides));
  layer_.k = {data(geometry.k_storage->dl_tensor), strides[0], strides[1], strides[2]};
  adopted_[0] = geometry.k_storage;
  if (layer_.v_in_k != 0) return Status();
  shape[3] = layer_.v_head_dim;
  KVC_TRY(check_pool(*geometry.v_storage, "v_storage", index, device, layer_.dtype, 4, shape, strides));
  layer_.v = {data(geometry.v_storage->dl_tensor), strides[0], strides[1], strides[2]};
  adopted_[1] = geometry.v_storage;
  return Status();
}

// A GPU's fast kernels copy 16 bytes at once, in memory that allows it; others attend in what does not.
void LayerStorage::tell_alignment(int64_t index) const {
  if (context_->is_host()) return;
  for (const kvc_backend_pool* pool : {&layer_.k, &layer_.v}) {
    const int64_t strides = (pool->page_stride | pool->head_stride | pool->slot_stride) * (layer_.dtype.bits / 8);
    if ((reinterpret_cast<uintptr_t>(pool->data) | static_cast<uintptr_t>(strides)) % 16 == 0) continue;
    context_->log(KVC_LOG_WARNING,
                  "layer %" PRId64
                  ": its pool at %p, or a stride of it, is not aligned to 16 bytes: slower kernels "
                  "attend there",
                  index, pool->data);
    return;
  }
}

Status LayerStorage::export_view(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                                 DLManagedTensorVersioned** out) {
  if (pool == KVC_POOL_K_SCALE || pool == KVC_POOL_V_SCALE) return export_scales(self, pool, writable, out);
  const kvc_backend_layer& layer = self->layer_;
  const DLDataType dtype = exported_dtype(layer.dtype);
  const kvc_backend_pool& part = pool == KVC_POOL_V ? layer.v : layer.k;
  const int64_t dims = pool == KVC_POOL_V ? layer.v_head_dim : layer.head_dim;
  if (pool == KVC_POOL_KV && !self->together_) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "K and V of this layer are no two halves of a page: export KVC_POOL_K and KVC_POOL_V");
  }
  const DLDevice device = self->context_->dl_device();
  if (pool == KVC_POOL_KV) {
    const int64_t shape[5] = {layer.num_pages, 2, layer.num_kv_heads, layer.page_size, dims};
    const int64_t strides[5] = {part.page_stride, self->k_to_v_, part.head_stride, part.slot_stride, 1};
    *out = make_tensor(self, part.data, device, dtype, 5, shape, strides, writable);
  } else {
    const int64_t shape[4] = {layer.num_pages, layer.num_kv_heads, layer.page_size, dims};
    const int64_t strides[4] = {part.page_stride, part.head_stride, part.slot_stride, 1};
    *out = make_tensor(self, part.data, device, dtype, 4, shape, strides, writable);
  }
  return Status();
}

Status LayerStorage::export_scales(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                                   DLManagedTensorVersioned** out) {
  const kvc_backend_layer& layer = self->layer_;
  const kvc_backend_scales& scales = pool == KVC_POOL_V_SCALE ? layer.v_scales : layer.k_scales;
  if (scales.data == nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the layer is not quantised: it has no scales");
  }
  constexpr DLDataType kFloat = {kDLFloat, 32, 1};
  const DLDevice device = self->context_->dl_device();
  if (scales.slot_stride != 0) {
    const int64_t shape[3] = {layer.num_pages, layer.num_kv_heads, layer.page_size};
    const int64_t strides[3] = {scales.page_stride, scales.head_stride, scales.slot_stride};
    *out = make_tensor(self, scales.data, device, kFloat, 3, shape, strides, writable);
    return Status();
  }
  if (writable) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the scales of a float8 layer are constant: no KVC_POOL_WRITABLE");
  }
  const int64_t shape[1] = {layer.num_kv_heads};
  *out = make_tensor(self, scales.data, device, kFloat, 1, shape, &scales.head_stride, false);
  return Status();
}

Status check_pools_apart(const std::vector<std::shared_ptr<LayerStorage>>& storages) {
  struct Pool {
    PoolRows rows;
    size_t layer;
    char name;
  };
  std::vector<Pool> pools;
  for (size_t i = 0; i < storages.size(); ++i) {
    if (!storages[i] || !storages[i]->adopted()) continue;
    const kvc_backend_layer& layer = storages[i]->layer();
    pools.push_back({PoolRows(layer, layer.k, layer.head_dim), i, 'K'});
    if (layer.v_in_k == 0) pools.push_back({PoolRows(layer, layer.v, layer.v_head_dim), i, 'V'});
  }
  std::stable_sort(pools.begin(), pools.end(),
                   [](const Pool& a, const Pool& b) { return a.rows.begin() < b.rows.begin(); });
  for (auto a = pools.begin(); a != pools.end(); ++a) {
    for (auto b = a + 1; b != pools.end() && b->rows.begin() < a->rows.end(); ++b) {
      if (!a->rows.overlaps(b->rows)) continue;
      const auto [first, second] = a->layer <= b->layer ? std::pair(a, b) : std::pair(b, a);
      return Status::error(KVC_ERROR_DUPLICATE, "layer %zu: its storage of %c overlaps that of %c of layer %zu",
                           second->layer, second->name, first->name, first->layer)
          .at(static_cast<int64_t>(second->layer));
    }
  }
  return Status();
}

DLDataType exported_dtype(DLDataType dtype) noexcept {
  const bool float8 = dtype.code == kDLFloat8_e4m3fn || dtype.code == kDLFloat8_e5m2;
  return float8 ? DLDataType{kDLUInt, 8, 1} : dtype;
}

DLManagedTensorVersioned* make_tensor(std::shared_ptr<void> owner, void* data, DLDevice device, DLDataType dtype,
                                      int32_t rank, const int64_t* shape, const int64_t* strides, bool writable) {
  struct Owned {
    DLManagedTensorVersioned tensor;
    int64_t shape[5];
    int64_t strides[5];
    std::shared_ptr<void> owner;
  };
  auto* owned = new Owned{};
  std::copy_n(shape, rank, owned->shape);
  std::copy_n(strides, rank, owned->strides);
  owned->owner = std::move(owner);
  DLManagedTensorVersioned& tensor = owned->tensor;
  tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  tensor.manager_ctx = owned;
  tensor.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<Owned*>(self->manager_ctx); };
  tensor.flags = writable ? 0 : DLPACK_FLAG_BITMASK_READ_ONLY;
  tensor.dl_tensor = {data, device, rank, dtype, owned->shape, owned->strides, 0};
  return &tensor;
}

}  // namespace kvc

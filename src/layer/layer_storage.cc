#include "layer/layer_storage.h"

#include <algorithm>
#include <cinttypes>

#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"
#include "layer/page_layout.h"
#include "layer/row_format.h"
#include "tensor/pool_overlap.h"
#include "tensor/tensor_check.h"

namespace kvc {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

Status check_storage(const kvc_layer_config& config, const kvc_backend_format& format, int64_t index) {
  const bool apart = config.k_storage != nullptr || config.v_storage != nullptr;
  const bool keys_only = (config.flags & KVC_LAYER_KEYS_ONLY) != 0, one_row = keys_only || config.latent_dim != 0;
  if (one_row && (config.kv_storage != nullptr || config.v_storage != nullptr)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %" PRId64 ": storage of %s is k_storage alone", index,
                         keys_only ? "keys only" : "an MLA group")
        .at(index);
  }
  if (!one_row && apart &&
      (config.kv_storage != nullptr || config.k_storage == nullptr || config.v_storage == nullptr)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": storage is kv_storage alone, or k_storage with v_storage", index)
        .at(index);
  }
  const bool own_pages =
      kernels::place_of_scales(format) == KVC_BACKEND_SCALES_PAGE || kernels::has_block_scales(format);
  if (own_pages && (apart || config.kv_storage != nullptr)) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "layer %" PRId64 ": pages of %s hold scales, and the library lays them out: no storage", index,
                         format_name(format).c_str())
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
  if (kvc_backend_layer& layer = storage->layer_; layer.row_kind == KVC_BACKEND_ROW_LATENT) {
    const int64_t v_bytes = layer.v.row_bytes;
    layer.v = layer.k;
    layer.v.row_bytes = v_bytes;
    layer.v_scales = layer.k_scales;
  }
  *out = std::move(storage);
  return Status();
}

// Places pools and scales in memory of the library, as page_layout says.
Status LayerStorage::allocate(const LayerGeometry& geometry) {
  const int64_t bytes = geometry.page_bytes * layer_.num_pages;
  const bool huge = bytes >= 2 * kHugePage;
  KVC_TRY(DeviceMemory::allocate(context_, bytes, huge ? kHugePage : DeviceMemory::kPageAlignment, huge, &memory_));
  const PageLayout layout = page_layout(layer_);
  together_ = layout.together;
  k_to_v_bytes_ = layout.v.rows.offset_bytes - layout.k.rows.offset_bytes;
  auto* base = static_cast<char*>(memory_->data());
  const auto place = [base](const RowsLayout& rows, auto* out) {
    if (rows.row_bytes == 0) return;
    out->data = base + rows.offset_bytes;
    out->page_stride_bytes = rows.page_stride_bytes;
    out->head_stride_bytes = rows.head_stride_bytes;
    out->slot_stride_bytes = rows.slot_stride_bytes;
  };
  place(layout.k.rows, &layer_.k);
  place(layout.v.rows, &layer_.v);
  place(layout.k.scales, &layer_.k_scales);
  place(layout.v.scales, &layer_.v_scales);
  return Status();
}

Status LayerStorage::allocate_head_scales(const LayerGeometry& geometry) {
  const int64_t heads = layer_.num_kv_heads;
  const int64_t bytes = 2 * heads * int64_t{sizeof(float)};
  KVC_TRY(DeviceMemory::allocate(context_, bytes, DeviceMemory::kPageAlignment, false, &head_scales_));
  auto* data = static_cast<float*>(head_scales_->data());
  std::vector<float> both = geometry.k_scales;
  both.insert(both.end(), geometry.v_scales.begin(), geometry.v_scales.end());
  KVC_TRY(context_->upload_now(data, both.data(), bytes));
  layer_.k_scales = {data, 0, sizeof(float), 0, 0};
  layer_.v_scales = {data + heads, 0, sizeof(float), 0, 0};
  return Status();
}

// Points a pool to a tensor [pages, heads, page_size, elements of a row].
void LayerStorage::point_to(void* data, const int64_t* strides, const ExportedRow& row, kvc_backend_pool* pool) {
  const int64_t bytes = element_bytes(row.dtype);
  pool->data = data;
  pool->page_stride_bytes = strides[0] * bytes;
  pool->head_stride_bytes = strides[1] * bytes;
  pool->slot_stride_bytes = strides[2] * bytes;
}

Status LayerStorage::adopt(const LayerGeometry& geometry, int64_t index) {
  const DLDevice device = context_->dl_device();
  const auto data = [](const DLTensor& t) { return static_cast<char*>(t.data) + t.byte_offset; };
  const ExportedRow k = stored_row(layer_.format.k, layer_.head_dim);
  const ExportedRow v = stored_row(layer_.format.v, layer_.v_head_dim);
  int64_t strides[5];
  if (geometry.kv_storage != nullptr) {
    const int64_t shape[5] = {layer_.num_pages, 2, layer_.num_kv_heads, layer_.page_size, k.elements};
    KVC_TRY(check_pool(*geometry.kv_storage, "kv_storage", index, device, k.dtype, 5, shape, strides));
    together_ = true;
    k_to_v_bytes_ = strides[1] * element_bytes(k.dtype);
    const int64_t of_half[3] = {strides[0], strides[2], strides[3]};
    char* base = data(geometry.kv_storage->dl_tensor);
    point_to(base, of_half, k, &layer_.k);
    point_to(base + k_to_v_bytes_, of_half, v, &layer_.v);
    adopted_[0] = geometry.kv_storage;
    return Status();
  }
  int64_t shape[4] = {layer_.num_pages, layer_.num_kv_heads, layer_.page_size, k.elements};
  KVC_TRY(check_pool(*geometry.k_storage, "k_storage", index, device, k.dtype, 4, shape, strides));
  point_to(data(geometry.k_storage->dl_tensor), strides, k, &layer_.k);
  adopted_[0] = geometry.k_storage;
  if (layer_.row_kind == KVC_BACKEND_ROW_LATENT) return Status();
  shape[3] = v.elements;
  KVC_TRY(check_pool(*geometry.v_storage, "v_storage", index, device, v.dtype, 4, shape, strides));
  point_to(data(geometry.v_storage->dl_tensor), strides, v, &layer_.v);
  adopted_[1] = geometry.v_storage;
  return Status();
}

// Logs a warning if a pool is not aligned to 16 bytes. A GPU's fast kernels need this alignment, so slower kernels run
// instead.
void LayerStorage::tell_alignment(int64_t index) const {
  if (context_->is_host()) return;
  for (const kvc_backend_pool* pool : {&layer_.k, &layer_.v}) {
    const int64_t strides = pool->page_stride_bytes | pool->head_stride_bytes | pool->slot_stride_bytes;
    if ((reinterpret_cast<uintptr_t>(pool->data) | static_cast<uintptr_t>(strides)) % 16 == 0) continue;
    context_->log(KVC_LOG_WARNING,
                  "layer %" PRId64
                  ": its pool at %p, or a stride of it, is not aligned to 16 bytes: slower kernels attend there",
                  index, pool->data);
    return;
  }
}

Status LayerStorage::export_view(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                                 DLManagedTensorVersioned** out) {
  const kvc_backend_layer& layer = self->layer_;
  if (kernels::keys_only(layer) && (pool == KVC_POOL_V || pool == KVC_POOL_V_SCALE)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "pool %d: the layer stores keys only", pool);
  }
  if (pool == KVC_POOL_V && layer.row_kind == KVC_BACKEND_ROW_LATENT && kernels::has_block_scales(layer.format)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "pool %d: V has no bytes of its own in a row of float4", pool);
  }
  if (pool == KVC_POOL_K_SCALE || pool == KVC_POOL_V_SCALE) return export_scales(self, pool, writable, out);
  const kvc_backend_pool& part = pool == KVC_POOL_V ? layer.v : layer.k;
  const ExportedRow row = pool == KVC_POOL_V ? exported_row(layer.format.v, layer.v_head_dim)
                                             : exported_row(layer.format.k, layer.head_dim);
  if (pool == KVC_POOL_KV && !self->together_) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "K and V of this layer are no two halves of a page: export KVC_POOL_K and KVC_POOL_V");
  }
  const DLDevice device = self->context_->dl_device();
  const int64_t bytes = element_bytes(row.dtype);
  const int64_t page = part.page_stride_bytes / bytes, head = part.head_stride_bytes / bytes,
                slot = part.slot_stride_bytes / bytes;
  if (pool == KVC_POOL_KV) {
    const int64_t shape[5] = {layer.num_pages, 2, layer.num_kv_heads, layer.page_size, row.elements};
    const int64_t strides[5] = {page, self->k_to_v_bytes_ / bytes, head, slot, 1};
    *out = make_tensor(self, part.data, device, row.dtype, 5, shape, strides, writable);
  } else {
    const int64_t shape[4] = {layer.num_pages, layer.num_kv_heads, layer.page_size, row.elements};
    const int64_t strides[4] = {page, head, slot, 1};
    *out = make_tensor(self, part.data, device, row.dtype, 4, shape, strides, writable);
  }
  return Status();
}

Status LayerStorage::export_scales(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                                   DLManagedTensorVersioned** out) {
  const kvc_backend_layer& layer = self->layer_;
  const kvc_backend_scales& scales = pool == KVC_POOL_V_SCALE ? layer.v_scales : layer.k_scales;
  if (scales.data == nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "the layer has no tensors of scales: it is not quantised, or its rows contain them");
  }
  constexpr DLDataType kFloat = {kDLFloat, 32, 1};
  const DLDevice device = self->context_->dl_device();
  constexpr int64_t kBytes = sizeof(float);
  const int64_t head_stride = scales.head_stride_bytes / kBytes;
  if (scales.row_bytes != 0) {
    const int64_t shape[3] = {layer.num_pages, layer.num_kv_heads, layer.page_size};
    const int64_t strides[3] = {scales.page_stride_bytes / kBytes, head_stride, scales.slot_stride_bytes / kBytes};
    *out = make_tensor(self, scales.data, device, kFloat, 3, shape, strides, writable);
    return Status();
  }
  if (writable) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "the scales of a float8 or float4 layer are constant: no KVC_POOL_WRITABLE");
  }
  const int64_t shape[1] = {layer.num_kv_heads};
  *out = make_tensor(self, scales.data, device, kFloat, 1, shape, &head_stride, false);
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
    pools.push_back({PoolRows(layer, layer.k), i, 'K'});
    if (layer.row_kind != KVC_BACKEND_ROW_LATENT) pools.push_back({PoolRows(layer, layer.v), i, 'V'});
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

ExportedRow stored_row(const kvc_backend_row_format& row, int32_t dims) noexcept {
  if (kernels::is_array(row)) return {row.segments[0].dtype, dims};
  return {{kDLUInt, 8, 1}, kernels::row_bytes(row, dims)};
}

ExportedRow exported_row(const kvc_backend_row_format& row, int32_t dims) noexcept {
  const ExportedRow stored = stored_row(row, dims);
  return is_float8_dtype(stored.dtype) ? ExportedRow{{kDLUInt, 8, 1}, stored.elements} : stored;
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

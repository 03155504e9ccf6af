// LayerStorage: the page pools of one layer and, if it is quantised, their scales. Pools lie in memory of the
// library, or in tensors that were adopted from the caller.
//
// Ownership: the cache and every exported view share it. The last owner releases the memory, on its own thread and
// without a lock. Thread safety: it does not change after the cache was created.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "context/context.h"
#include "layer/geometry.h"

namespace kvc {

// Checks that a layer's config gives storage for all of its pools, or for none.
Status check_storage(const kvc_layer_config& config, const kvc_backend_format& format, int64_t index);

// A stored row as the innermost dimension of a tensor.
struct ExportedRow {
  DLDataType dtype;
  int64_t elements;
};

// Describes a row by its elements if all of them have one dtype of whole bytes. Any other row is described as bytes.
ExportedRow stored_row(const kvc_backend_row_format& row, int32_t dims) noexcept;

// Like stored_row, for exports. float8 becomes uint8, which every consumer of DLPack reads.
ExportedRow exported_row(const kvc_backend_row_format& row, int32_t dims) noexcept;

// Checks that no tensor is adopted twice, because its deleter can run only once. With KVC_STORAGE_NONE, no tensor may
// be given.
Status check_storages(const std::vector<LayerGeometry>& layers, bool tables_only);

class LayerStorage {
 public:
  // Allocates the pools of `geometry`, or checks the pools of the caller. The caller owns an adopted tensor until
  // take_ownership().
  static Status create(const std::shared_ptr<Context>& context, const LayerGeometry& geometry, int64_t index,
                       std::shared_ptr<LayerStorage>* out);
  ~LayerStorage();
  LayerStorage(const LayerStorage&) = delete;
  LayerStorage& operator=(const LayerStorage&) = delete;

  void take_ownership() noexcept { owned_ = true; }

  // The layer with its data pointers set.
  const kvc_backend_layer& layer() const noexcept { return layer_; }

  bool adopted() const noexcept { return adopted_[0] != nullptr; }

  // Makes a view of a pool (KVC_POOL_*). The view becomes an owner of `self`.
  static Status export_view(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                            DLManagedTensorVersioned** out);

 private:
  explicit LayerStorage(std::shared_ptr<Context> context, const LayerGeometry& geometry);
  Status allocate(const LayerGeometry& geometry);
  Status adopt(const LayerGeometry& geometry, int64_t index);
  static void point_to(void* data, const int64_t* strides, const ExportedRow& row, kvc_backend_pool* pool);
  void tell_alignment(int64_t index) const;
  Status allocate_head_scales(const LayerGeometry& geometry);
  static Status export_scales(const std::shared_ptr<LayerStorage>& self, int32_t pool, bool writable,
                              DLManagedTensorVersioned** out);

  std::shared_ptr<Context> context_;
  kvc_backend_layer layer_;
  std::shared_ptr<DeviceMemory> memory_;       // null if adopted
  std::shared_ptr<DeviceMemory> head_scales_;  // float8, float4: [2, Hkv], first for K, then for V; otherwise null
  DLManagedTensorVersioned* adopted_[2] = {nullptr, nullptr};
  bool owned_ = false;
  bool together_ = false;  // K and V can be described as one tensor [pages, 2, ...]
  int64_t k_to_v_bytes_ = 0;
};

// Refuses adopted pools that share memory. storages: [layers], null for a layer without storage of its own.
Status check_pools_apart(const std::vector<std::shared_ptr<LayerStorage>>& storages);

// Makes a tensor that owns `owner` and releases it in its deleter. Strides are in elements. Throws std::bad_alloc.
DLManagedTensorVersioned* make_tensor(std::shared_ptr<void> owner, void* data, DLDevice device, DLDataType dtype,
                                      int32_t rank, const int64_t* shape, const int64_t* strides, bool writable);

}  // namespace kvc

// Tensors that leave and enter a cache: pool views, exports and imports of a sequence.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

Status Cache::export_pool(int32_t layer, int32_t pool, uint32_t flags, DLManagedTensorVersioned** out) {
  KVC_TRY(check_layer(layer));
  if (pool < KVC_POOL_KV || pool > KVC_POOL_V) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "pool %d is none of KVC_POOL_KV, KVC_POOL_K, KVC_POOL_V", pool);
  }
  if ((flags & ~uint32_t{KVC_POOL_WRITABLE}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  return LayerStorage::export_view(layers_[static_cast<size_t>(layer)].storage, pool, (flags & KVC_POOL_WRITABLE) != 0,
                                   out);
}

// Slots of positions [begin, end) of a sequence in the group of a layer; end 0 = its length.
Status Cache::find_slots(int32_t slot, int32_t group, int64_t begin, int64_t end, std::vector<int64_t>* slots) const {
  if (end == 0) end = store_.length(slot);
  if (begin < 0 || end < begin || end > store_.length(slot)) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "positions [%" PRId64 ", %" PRId64 ") are not within the sequence's length %" PRId64, begin,
                         end, store_.length(slot));
  }
  const PageList& list = store_.list(slot, group);
  const int64_t page_size = geometry_.page_size;
  if (end > begin && begin < list.first * page_size) {
    return Status::error(KVC_ERROR_EVICTED,
                         "keys before position %" PRId64 " of group %d are freed, and the range starts at %" PRId64,
                         list.first * page_size, group, begin)
        .in_group(group);
  }
  slots->reserve(static_cast<size_t>(end - begin));
  store_.table(group).for_each(list, begin / page_size, ceil_div(end, page_size), [&](int64_t index, int32_t page) {
    const int64_t stop = std::min(end, (index + 1) * page_size);
    for (int64_t p = std::max(begin, index * page_size); p < stop; ++p)
      slots->push_back(page * page_size + p % page_size);
  });
  return Status();
}

// Copies rows by slot into memory of their own: [tokens, Hkv, D] for k and [tokens, Hkv, Dv] for v, as far as wanted.
Status Cache::gather(const kvc_backend_layer& layer, const std::vector<int64_t>& slots, bool wanted[2], void* stream,
                     std::shared_ptr<DeviceMemory> memory[2]) const {
  kvc_backend_gather args = {&layer, static_cast<int64_t>(slots.size()), slots.data(), nullptr, nullptr};
  const int32_t dims[2] = {layer.head_dim, layer.v_head_dim};
  for (int part = 0; part < 2; ++part) {
    if (!wanted[part]) continue;
    const int64_t bytes = args.num_tokens * layer.num_kv_heads * dims[part] * (layer.dtype.bits / 8);
    KVC_TRY(DeviceMemory::allocate(context_, std::max<int64_t>(bytes, 1), 4096, false, &memory[part]));
    (part == 0 ? args.k : args.v) = memory[part]->data();
  }
  if (args.num_tokens == 0) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context_->backend().gather(context_->device(), &args, stream, &error), error);
}

Status Cache::export_sequence(kvc_seq id, const kvc_export_args& args, DLManagedTensorVersioned** k,
                              DLManagedTensorVersioned** v, void* stream) {
  KVC_TRY(check_stream(stream));
  KVC_TRY(check_layer(args.layer));
  const Layer& source = layers_[static_cast<size_t>(args.layer)];
  const kvc_backend_layer& layer = source.backend();
  std::vector<int64_t> slots;
  std::shared_ptr<DeviceMemory> memory[2];
  bool wanted[2] = {k != nullptr, v != nullptr};
  int32_t snapshot = -1;
  {
    MutexLock lock(mutex_);
    int32_t slot = -1;
    KVC_TRY(store_.resolve(id, 0, &slot));
    if (store_.busy(slot)) return Status::error(KVC_ERROR_BUSY, "sequence %" PRIu64 " is in an open forward", id);
    KVC_TRY(find_slots(slot, source.group, args.position_begin, args.position_end, &slots));
    snapshot = store_.take_snapshot(slot, source.group);
    if (snapshot < 0)
      return Status::error(KVC_ERROR_BUSY, "%" PRId64 " exports run already", geometry_.store.max_snapshots);
  }
  // Outside the lock: the snapshot keeps the pages.
  Status copied = gather(layer, slots, wanted, stream, memory);
  {
    MutexLock lock(mutex_);
    store_.drop_snapshot(snapshot);
  }
  if (!copied.ok()) return copied;
  const auto make = [&](std::shared_ptr<DeviceMemory> owner, int64_t dims) {
    const int64_t shape[3] = {static_cast<int64_t>(slots.size()), layer.num_kv_heads, dims};
    const int64_t strides[3] = {shape[1] * dims, dims, 1};
    void* data = owner->data();
    return make_tensor(std::move(owner), data, context_->dl_device(), layer.dtype, 3, shape, strides, true);
  };
  DLManagedTensorVersioned* k_tensor = wanted[0] ? make(std::move(memory[0]), layer.head_dim) : nullptr;
  try {
    if (wanted[1]) *v = make(std::move(memory[1]), layer.v_head_dim);
  } catch (...) {
    if (k_tensor != nullptr) k_tensor->deleter(k_tensor);
    throw;
  }
  if (wanted[0]) *k = k_tensor;
  return Status();
}

// All tensors of an import, checked before anything changes.
Status Cache::check_import(const kvc_import_args& args, std::vector<kvc_backend_tensor>* k,
                           std::vector<kvc_backend_tensor>* v, int64_t* tokens) const {
  const auto num_layers = static_cast<int32_t>(layers_.size());
  if ((args.flags & ~uint32_t{KVC_IMPORT_ROTATE}) != 0 || args.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x or reserved 0x%x has unknown bits", args.flags,
                         args.reserved);
  }
  if (args.num_layers != num_layers) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_layers %d is not the cache's %d", args.num_layers,
                         num_layers);
  }
  if (args.k == nullptr || args.v == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", args.k == nullptr ? "k" : "v");
  }
  const DLTensor* first = args.k[0];
  if (first == nullptr || first->ndim != 3 || first->shape == nullptr) {
    return Status::error(first == nullptr ? KVC_ERROR_NULL_ARGUMENT : KVC_ERROR_RANK,
                         "k of layer 0 is no tensor of 3 dims")
        .at(0);
  }
  *tokens = first->shape[0];
  k->resize(layers_.size());
  v->resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto check = [&]() -> Status {
      const kvc_backend_layer& layer = layers_[i].backend();
      KVC_TRY(check_rows(args.k[i], rows_spec("k", *tokens, layer.num_kv_heads, layer.head_dim, false), &(*k)[i]));
      KVC_TRY(check_rows(args.v[i], rows_spec("v", *tokens, layer.num_kv_heads, layer.v_head_dim, false), &(*v)[i]));
      const bool equal = args.k[i]->shape[0] == *tokens && args.v[i]->shape[0] == *tokens;
      return equal ? Status()
                   : Status::error(KVC_ERROR_SHAPE,
                                   "k has %" PRId64 " and v %" PRId64 " tokens in layer %zu, layer 0 has %" PRId64,
                                   args.k[i]->shape[0], args.v[i]->shape[0], i, *tokens);
    };
    if (Status status = check(); !status.ok()) return std::move(status).at(static_cast<int64_t>(i));
  }
  return Status();
}

Status Cache::import_sequence(kvc_seq id, const kvc_import_args& args, void* stream) {
  std::vector<kvc_backend_tensor> k;
  std::vector<kvc_backend_tensor> v;
  int64_t tokens = 0;
  KVC_TRY(check_import(args, &k, &v, &tokens));
  if (tokens > geometry_.limits.tokens) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " tokens exceed max_batch_tokens %" PRId64, tokens,
                         geometry_.limits.tokens)
        .missing(tokens, geometry_.limits.tokens);
  }
  if (id == 0) return Status::error(KVC_ERROR_STALE_ID, "sequence 0 is no sequence").at(0);  // in a batch: an inert row
  const auto length = static_cast<int32_t>(tokens);
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &id;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward step = 0;
  KVC_TRY(begin(batch, stream, &step));
  Forward* forward = nullptr;
  {
    MutexLock lock(mutex_);  // nobody else knows the id: the step is this call's
    int32_t slot = -1;
    KVC_TRY(resolve_forward(step, &slot));
    forward = forwards_[static_cast<size_t>(slot)].get();
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const NewKv kv = {k[i], v[i], (args.flags & KVC_IMPORT_ROTATE) == 0, nullptr};
    Status appended = run_append(*forward, static_cast<int32_t>(i), kv);
    if (appended.ok()) continue;
    MutexLock lock(mutex_);
    close(*forward, false);
    return std::move(appended).at(static_cast<int64_t>(i));
  }
  return end(step);
}

}  // namespace kvc

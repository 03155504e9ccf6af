// Exports of pools, and exports and imports of a sequence.
#include "cache/cache_tensors.h"

#include <algorithm>
#include <cinttypes>

#include "base/element_bytes.h"
#include "base/read_once.h"
#include "kernels/common/stored_format.h"
#include "layer/row_format.h"

namespace kvc {
namespace {

// The four tensors that an export can return: k, v, k_scale, v_scale.
struct ExportParts {
  struct Part {
    bool wanted = false;
    DLDataType dtype = {};
    int32_t rank = 0;
    int64_t shape[3] = {};
    std::shared_ptr<DeviceMemory> memory;

    int64_t bytes() const {
      int64_t bytes = element_bytes(dtype);
      for (int32_t i = 0; i < rank; ++i) bytes *= shape[i];
      return bytes;
    }
  };
  Part parts[4];

  // parts: KVC_EXPORT_* flags; 0 = all parts that the layer stores. Returns UNSUPPORTED if the layer lacks a wanted
  // part.
  Status choose(const kvc_backend_layer& layer, uint32_t parts);
  void set_tokens(int64_t tokens);
  // Creates all wanted tensors. Throws std::bad_alloc, and then creates none.
  void make(DLDevice device, kvc_exported* out);
};

Status ExportParts::choose(const kvc_backend_layer& layer, uint32_t wanted) {
  constexpr uint32_t kScales = KVC_EXPORT_K_SCALE | KVC_EXPORT_V_SCALE;
  constexpr uint32_t kAll = KVC_EXPORT_K | KVC_EXPORT_V | kScales;
  if ((wanted & ~kAll) != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "parts 0x%x has unknown bits", wanted);
  const bool quantised = layer.k_scales.data != nullptr;
  if (!quantised && (wanted & kScales) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "parts 0x%x: the layer has no tensors of scales", wanted);
  }
  if (kernels::keys_only(layer) && (wanted & (KVC_EXPORT_V | KVC_EXPORT_V_SCALE)) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "parts 0x%x: the layer stores keys only", wanted);
  }
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT && kernels::has_block_scales(layer.format) && (wanted & KVC_EXPORT_V)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "parts 0x%x: V has no bytes of its own in a row of %s; export K",
                         wanted, format_name(layer).c_str());
  }
  if (wanted == 0) {
    wanted = quantised ? kAll : KVC_EXPORT_K | KVC_EXPORT_V;
    if (layer.row_kind == KVC_BACKEND_ROW_LATENT) wanted &= ~uint32_t{KVC_EXPORT_V | KVC_EXPORT_V_SCALE};
  }
  const int64_t heads = layer.num_kv_heads;
  for (uint32_t i = 0; i < 4; ++i) {
    Part& part = parts[i];
    part.wanted = (wanted >> i & 1u) != 0;
    const bool scale = i >= 2;
    const kvc_backend_row_format& format = i % 2 == 0 ? layer.format.k : layer.format.v;
    const int32_t dims = i % 2 == 0 ? layer.head_dim : layer.v_head_dim;
    ExportedRow row = scale ? exported_scales(format, dims) : exported_row(format, dims);
    const bool head_scales = scale && layer.k_scales.row_bytes == 0;
    if (head_scales) row = {{kDLFloat, 32, 1}, 1};
    part.dtype = row.dtype;
    part.rank = head_scales ? 1 : scale && row.elements == 1 ? 2 : 3;
    part.shape[0] = part.rank == 1 ? heads : 0;
    part.shape[1] = heads;
    part.shape[2] = row.elements;
  }
  return Status();
}

void ExportParts::set_tokens(int64_t tokens) {
  for (Part& part : parts) {
    if (part.rank > 1) part.shape[0] = tokens;
  }
}

void ExportParts::make(DLDevice device, kvc_exported* out) {
  DLManagedTensorVersioned* tensors[4] = {};
  try {
    for (int i = 0; i < 4; ++i) {
      Part& part = parts[i];
      if (!part.wanted) continue;
      int64_t strides[3] = {1, 1, 1};
      for (int32_t dim = part.rank - 1; dim-- > 0;) strides[dim] = strides[dim + 1] * part.shape[dim + 1];
      void* data = part.memory->data();
      tensors[i] = make_tensor(std::move(part.memory), data, device, part.dtype, part.rank, part.shape, strides, true);
    }
  } catch (...) {
    for (DLManagedTensorVersioned* tensor : tensors) {
      if (tensor != nullptr) tensor->deleter(tensor);
    }
    throw;
  }
  out->k = tensors[0];
  out->v = tensors[1];
  out->k_scale = tensors[2];
  out->v_scale = tensors[3];
}

// Copies the wanted parts of the rows in `slots` into new memory.
Status gather(const Layers& layers, int32_t index, const std::vector<int64_t>& slots, ExportParts* parts,
              void* stream) {
  const std::shared_ptr<Context>& context = layers.context();
  const Layer& source = layers[index];
  const kvc_backend_layer& layer = source.backend;
  const LayerGeometry& stored = layers.geometry(source.kv_layer >= 0 ? source.kv_layer : index);
  kvc_backend_gather args = {};
  args.layer = &layer;
  args.num_tokens = static_cast<int64_t>(slots.size());
  args.slots = slots.data();
  parts->set_tokens(args.num_tokens);
  void* data[4] = {};
  for (int i = 0; i < 4; ++i) {
    ExportParts::Part& part = parts->parts[i];
    if (!part.wanted) continue;
    KVC_TRY(DeviceMemory::allocate(context, std::max<int64_t>(part.bytes(), 1), DeviceMemory::kPageAlignment, false,
                                   &part.memory));
    data[i] = part.memory->data();
    if (part.rank > 1) continue;
    const std::vector<float>& scales =
        i == 2 || layer.row_kind == KVC_BACKEND_ROW_LATENT ? stored.k_scales : stored.v_scales;
    KVC_TRY(context->upload(data[i], scales.data(), part.bytes(), stream));
    data[i] = nullptr;
  }
  args.k = data[0];
  args.v = data[1];
  args.k_scale = data[2];
  args.v_scale = data[3];
  if (args.num_tokens == 0) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context->backend().gather(context->device(), &args, stream, &error), error);
}

// Checks all tensors of an import, before the import changes the cache. Sets *rows to the tensors of each layer, and
// *tokens to the number of tokens.
Status check_import(const Layers& layers, const kvc_import_args& args, std::vector<KvRows>* rows, int64_t* tokens) {
  const auto num_layers = layers.size();
  if ((args.flags & ~uint32_t{KVC_IMPORT_AS_STORED}) != 0 || args.reserved != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x or reserved 0x%x has unknown bits", args.flags,
                         args.reserved);
  }
  if (args.num_layers != num_layers) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_layers %d is not the cache's %d", args.num_layers,
                         num_layers);
  }
  const bool needs_v = std::any_of(layers.begin(), layers.end(),
                                   [](const Layer& l) { return l.backend.row_kind != KVC_BACKEND_ROW_LATENT; });
  if (args.k == nullptr || (needs_v && args.v == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL", args.k == nullptr ? "k" : "v");
  }
  const auto stores = [&](const Layer& l) { return l.kv_layer < 0 && !layers.rules(l).holds_encoder(); };
  for (int32_t i = 0; i < num_layers; ++i) {
    if (layers.rules(layers[i]).compresses()) {
      return Status::error(KVC_ERROR_UNSUPPORTED,
                           "layer %d has a row for each %" PRId64 " tokens: append what closes in a forward", i,
                           layers.rules(layers[i]).tokens_per_row)
          .at(i);
    }
    if (!layers[i].states) continue;
    return Status::error(KVC_ERROR_UNSUPPORTED, "layer %d is recurrent: append and store its states in a forward", i)
        .at(i);
  }
  const int64_t first_layer = std::find_if(layers.begin(), layers.end(), stores) - layers.begin();
  if (first_layer == num_layers)
    return Status::error(KVC_ERROR_UNSUPPORTED, "no layer stores the sequence's own tokens");
  const DLTensor* first = args.k[first_layer];
  if (first == nullptr || first->ndim != 3 || first->shape == nullptr) {
    return Status::error(first == nullptr ? KVC_ERROR_NULL_ARGUMENT : KVC_ERROR_RANK,
                         "k of layer %" PRId64 " is no tensor of 3 dims", first_layer)
        .at(first_layer);
  }
  *tokens = first->shape[0];
  if (*tokens < 1) {
    return Status::error(KVC_ERROR_SHAPE, "k of layer %" PRId64 " has %" PRId64 " tokens; at least 1", first_layer,
                         *tokens)
        .at(first_layer);
  }
  const auto count = static_cast<size_t>(num_layers);
  rows->resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Layer& layer = layers[static_cast<int32_t>(i)];
    const auto check = [&]() -> Status {
      const DLTensor* v = args.v == nullptr ? nullptr : args.v[i];
      const KvTensors tensors = {args.k[i], v, args.k_scale == nullptr ? nullptr : args.k_scale[i],
                                 args.v_scale == nullptr ? nullptr : args.v_scale[i],
                                 (args.flags & KVC_IMPORT_AS_STORED) != 0};
      if (!stores(layer)) {
        if (args.k[i] == nullptr && v == nullptr) return Status();
        return Status::error(KVC_ERROR_INVALID_ARGUMENT, "k and v are given for layer %zu, which %s", i,
                             layer.kv_layer >= 0 ? "reads another's" : "is a cross layer");
      }
      KVC_TRY(check_kv_rows(tensors, layer.backend, *tokens, layers.context()->dl_device(), &(*rows)[i]));
      const int64_t v_tokens = v == nullptr ? *tokens : v->shape[0];
      const bool equal = args.k[i]->shape[0] == *tokens && v_tokens == *tokens;
      return equal ? Status()
                   : Status::error(KVC_ERROR_SHAPE,
                                   "k has %" PRId64 " and v %" PRId64 " tokens in layer %zu, layer %" PRId64
                                   " has %" PRId64,
                                   args.k[i]->shape[0], v_tokens, i, first_layer, *tokens);
    };
    if (Status status = check(); !status.ok()) return std::move(status).in_layer(static_cast<int64_t>(i));
  }
  return Status();
}

}  // namespace

Status CacheTensors::export_pool(int32_t layer, int32_t pool, uint32_t flags, DLManagedTensorVersioned** out,
                                 void* stream) {
  KVC_TRY(core_.context->check_stream(stream));
  KVC_TRY(core_.layers.check_layer(layer));
  if (pool < KVC_POOL_KV || pool > KVC_POOL_V_SCALE) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "pool %d is none of KVC_POOL_KV (0) to KVC_POOL_V_SCALE (%d)",
                         pool, KVC_POOL_V_SCALE);
  }
  if ((flags & ~uint32_t{KVC_POOL_WRITABLE}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  KVC_TRY(core_.layers.check_stores_kv(layer));
  KVC_TRY(core_.layers.check_has_storage(layer));
  {
    MutexLock lock(core_.mutex);
    KVC_TRY(core_.order.check_stream(stream));
    KVC_TRY(core_.order.enter(stream));  // the export enqueues nothing, so it need not call leave
  }
  return LayerStorage::export_view(core_.layers[layer].storage, pool, (flags & KVC_POOL_WRITABLE) != 0, out);
}

// Finds the slots of the rows that a layer has for positions [begin, end) of a sequence. slot: the slot of the sequence
// in the store. If end is 0, the range ends at the length of the sequence.
Status CacheTensors::find_slots(int32_t slot, int32_t layer, int64_t begin, int64_t end,
                                std::vector<int64_t>* slots) const {
  const Layer& source = core_.layers[layer];
  const int32_t group = source.group, storing = source.kv_layer >= 0 ? source.kv_layer : layer;
  const int64_t length = core_.store.length_in(slot, group);
  if (end == 0) end = length;
  if (begin < 0 || end < begin || end > length) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "positions [%" PRId64 ", %" PRId64 ") are not within the sequence's length %" PRId64, begin,
                         end, length);
  }
  if (const int64_t held = core_.store.held(slot, group, storing); end > begin && end > held) {
    return Status::error(KVC_ERROR_ORDER,
                         "layer %d holds %" PRId64 " of the sequence's %" PRId64
                         " tokens, since a forward did not cover it, and the range is [%" PRId64 ", %" PRId64 ")",
                         storing, held, length, begin, end)
        .at(layer)
        .missing(end, held);
  }
  const PageList& list = core_.store.list(slot, group);
  const int64_t page_size = core_.geometry.page_size;
  if (end > begin && list.has_hole() && begin < list.first * page_size && end > list.kept * page_size) {
    return Status::error(KVC_ERROR_EVICTED,
                         "keys [%" PRId64 ", %" PRId64 ") of group %d are freed, and the range is [%" PRId64
                         ", %" PRId64 ")",
                         list.kept * page_size, list.first * page_size, group, begin, end)
        .in_group(group);
  }
  const GroupRules& rules = core_.rules(group);
  const int64_t page_rows = rules.rows_of(page_size), first = rules.rows_of(begin), last = rules.rows_of(end);
  slots->reserve(static_cast<size_t>(last - first));
  core_.store.table(group).for_each(list, first / page_rows, ceil_div(last, page_rows),
                                    [&](int64_t index, int32_t page) {
                                      const int64_t stop = std::min(last, (index + 1) * page_rows);
                                      for (int64_t p = std::max(first, index * page_rows); p < stop; ++p)
                                        slots->push_back(page * page_rows + p % page_rows);
                                    });
  return Status();
}

Status CacheTensors::export_sequence(kvc_seq id, const kvc_export_args& args, kvc_exported* out, void* stream) {
  KVC_TRY(core_.context->check_stream(stream));
  KVC_TRY(core_.layers.check_layer(args.layer));
  if (args.reserved != 0) return Status::error(KVC_ERROR_UNSUPPORTED, "reserved 0x%x is not 0", args.reserved);
  KVC_TRY(core_.layers.check_stores_kv(args.layer));
  KVC_TRY(core_.layers.check_has_storage(args.layer));
  const Layer& source = core_.layers[args.layer];
  ExportParts parts;
  KVC_TRY(parts.choose(source.backend, args.parts));
  std::vector<int64_t> slots;
  int32_t snapshot = -1;
  {
    MutexLock lock(core_.mutex);
    int32_t slot = -1;
    KVC_TRY(core_.store.resolve(id, 0, &slot));
    if (core_.store.busy(slot)) return core_.store.busy_error(slot, 0);
    if (core_.store.is_pending(slot)) return core_.store.pending_error(slot, 0);
    KVC_TRY(find_slots(slot, args.layer, args.position_begin, args.position_end, &slots));
    snapshot = core_.store.take_snapshot(slot, source.group);
    if (snapshot < 0)
      return Status::error(KVC_ERROR_BUSY, "%" PRId64 " exports run already", core_.geometry.store.max_snapshots);
    Status entered = core_.order.check_stream(stream);
    if (entered.ok()) entered = core_.order.enter(stream);
    if (!entered.ok()) {
      core_.store.drop_snapshot(snapshot);
      return entered;
    }
  }
  // The copy runs outside the lock. Meanwhile, the snapshot keeps the pages.
  Status copied = gather(core_.layers, args.layer, slots, &parts, stream);
  {
    MutexLock lock(core_.mutex);
    core_.store.drop_snapshot(snapshot);
    Status left = core_.order.leave(stream);
    if (copied.ok()) copied = std::move(left);
  }
  if (!copied.ok()) return copied;
  parts.make(core_.context->dl_device(), out);
  return Status();
}

Status CacheTensors::import_sequence(kvc_seq id, const kvc_import_args& given, void* stream) {
  KVC_TRY(core_.layers.check_has_storage(0));
  const auto count = given.num_layers == core_.layers.size() ? given.num_layers : 0;
  const CallArray k(given.k, count), v(given.v, count), k_scale(given.k_scale, count), v_scale(given.v_scale, count);
  kvc_import_args args = given;
  const auto own = [](const CallArray<const DLTensor*>& copy, const DLTensor* const** array) {
    if (*array != nullptr) *array = copy.span().data();
  };
  own(k, &args.k);
  own(v, &args.v);
  own(k_scale, &args.k_scale);
  own(v_scale, &args.v_scale);
  std::vector<KvRows> rows;
  int64_t tokens = 0;
  KVC_TRY(check_import(core_.layers, args, &rows, &tokens));
  if (tokens > core_.geometry.limits.tokens) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "%" PRId64 " tokens exceed max_batch_tokens %" PRId64, tokens,
                         core_.geometry.limits.tokens)
        .missing(tokens, core_.geometry.limits.tokens);
  }
  // A forward accepts id 0 as an inert row.
  if (id == 0) return Status::error(KVC_ERROR_STALE_ID, "sequence 0 is no sequence").at(0);
  {
    MutexLock lock(core_.mutex);
    int32_t slot = -1;
    if (core_.store.resolve(id, 0, &slot).ok() && core_.store.is_pending(slot))
      return core_.store.pending_error(slot, 0);
  }
  const auto length = static_cast<int32_t>(tokens);
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &id;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward step = 0;
  KVC_TRY(steps_.begin(batch, stream, &step));
  const bool as_stored = (args.flags & KVC_IMPORT_AS_STORED) != 0;
  Status appended = steps_.in_step(step, false, [&](Step& open) {
    for (int32_t layer = 0; layer < core_.layers.size(); ++layer) {
      if (!open.appends(layer)) continue;
      Status status = open.append_rows(layer, rows[static_cast<size_t>(layer)], as_stored);
      if (!status.ok()) return std::move(status).at(layer);
    }
    return Status();
  });
  if (appended.ok()) return steps_.end(step);
  (void)steps_.abort(step).ok();  // does nothing if the failure has closed the step
  return appended;
}

}  // namespace kvc

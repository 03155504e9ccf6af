#include "layer/row_copy.h"

#include <algorithm>

namespace kvc {
namespace {

template <class Visit>
void for_each_run(const Layers& layers, int32_t group, Visit visit) {
  for (int32_t i = 0; i < layers.size(); ++i) {
    if (layers[i].group != group || layers[i].kv_layer >= 0 || layers[i].states) continue;
    const kvc_backend_layer& layer = layers[i].backend;
    const bool latent = layer.row_kind == KVC_BACKEND_ROW_LATENT;
    const int64_t heads = layer.num_kv_heads;
    const HeadRange all = {0, layer.num_kv_heads};
    const RowRun runs[] = {{i, RowPart::kK, heads * layer.k.row_bytes, all},
                           {i, RowPart::kV, latent ? 0 : heads * layer.v.row_bytes, all},
                           {i, RowPart::kKScales, heads * layer.k_scales.row_bytes, all},
                           {i, RowPart::kVScales, latent ? 0 : heads * layer.v_scales.row_bytes, all}};
    for (const RowRun& run : runs) {
      if (run.token_bytes > 0) visit(run);
    }
  }
}

// The layer with some of its heads.
kvc_backend_layer with_heads(kvc_backend_layer layer, HeadRange heads) noexcept {
  const auto skip = [&](void*& data, int64_t head_stride_bytes) {
    if (data != nullptr) data = static_cast<char*>(data) + heads.first * head_stride_bytes;
  };
  skip(layer.k.data, layer.k.head_stride_bytes);
  skip(layer.v.data, layer.v.head_stride_bytes);
  skip(layer.k_scales.data, layer.k_scales.head_stride_bytes);
  skip(layer.v_scales.data, layer.v_scales.head_stride_bytes);
  layer.num_kv_heads = heads.count;
  return layer;
}

}  // namespace

Status RowCopy::create(const Layers& layers, std::unique_ptr<RowCopy>* out, int64_t staging_bytes) {
  std::unique_ptr<RowCopy> copy(new RowCopy(layers));
  if (!layers.context()->is_host()) {
    for (int32_t g = 0; g < layers.num_groups(); ++g) {
      for_each_run(layers, g, [&](const RowRun& run) { staging_bytes = std::max(staging_bytes, run.token_bytes); });
    }
    KVC_TRY(
        DeviceMemory::allocate(layers.context(), staging_bytes, DeviceMemory::kPageAlignment, false, &copy->staging_));
  }
  *out = std::move(copy);
  return Status();
}

std::vector<RowRun> RowCopy::runs(const Layers& layers, int32_t group) {
  std::vector<RowRun> runs;
  for_each_run(layers, group, [&](const RowRun& run) { runs.push_back(run); });
  return runs;
}

int64_t RowCopy::token_bytes(const Layers& layers, int32_t group) {
  int64_t bytes = 0;
  for_each_run(layers, group, [&](const RowRun& run) { bytes += run.token_bytes; });
  return bytes;
}

int64_t RowCopy::state_bytes(const Layers& layers, int32_t group) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < layers.size(); ++i) {
    if (layers[i].group != group) continue;
    for (const StateGeometry& state : layers.geometry(i).states) bytes += state.bytes;
  }
  return bytes;
}

Status RowCopy::move(const RowRun& run, std::span<const int64_t> slots, void* rows, bool store, void* stream) {
  kvc_backend_gather args = {};
  const kvc_backend_layer layer = with_heads(layers_[run.layer].backend, run.heads);
  args.layer = &layer;
  args.num_tokens = static_cast<int64_t>(slots.size());
  args.slots = slots.data();
  args.store = store ? 1 : 0;
  void** const places[] = {&args.k, &args.v, &args.k_scale, &args.v_scale};
  *places[static_cast<size_t>(run.part)] = rows;
  const Context& context = *layers_.context();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context.backend().gather(context.device(), &args, stream, &error), error);
}

Status RowCopy::read_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream) {
  if (!staging_) return slots.empty() ? Status() : move(run, slots, bytes, false, stream);
  const auto most = static_cast<size_t>(staging_->bytes() / run.token_bytes);
  while (!slots.empty()) {
    const auto part = slots.first(std::min(most, slots.size()));
    const int64_t size = static_cast<int64_t>(part.size()) * run.token_bytes;
    KVC_TRY(move(run, part, staging_->data(), false, stream));
    KVC_TRY(layers_.context()->download(bytes, staging_->data(), size, stream));
    slots = slots.subspan(part.size());
    bytes += size;
  }
  return Status();
}

Status RowCopy::begin_run(const RowRun& run, std::span<const int64_t> slots, uint8_t* bytes, void* stream) {
  return move(run, slots, staging_ ? staging_->data() : bytes, false, stream);
}

Status RowCopy::end_run(uint8_t* bytes, int64_t size, void* stream) {
  return staging_ ? layers_.context()->download(bytes, staging_->data(), size, stream) : Status();
}

Status RowCopy::write_run(const RowRun& run, std::span<const int64_t> slots, const uint8_t* bytes, void* stream) {
  // The cast is safe: a backend that stores bytes in a page only reads them here.
  if (!staging_) return slots.empty() ? Status() : move(run, slots, const_cast<uint8_t*>(bytes), true, stream);
  const auto most = static_cast<size_t>(staging_->bytes() / run.token_bytes);
  while (!slots.empty()) {
    const auto part = slots.first(std::min(most, slots.size()));
    const int64_t size = static_cast<int64_t>(part.size()) * run.token_bytes;
    KVC_TRY(layers_.context()->upload(staging_->data(), bytes, size, stream));
    KVC_TRY(move(run, part, staging_->data(), true, stream));
    slots = slots.subspan(part.size());
    bytes += size;
  }
  return Status();
}

// Calls visit(address on the device, bytes) for each state in a page.
template <class Visit>
Status RowCopy::for_each_state(int32_t group, int32_t page, Visit visit) {
  for (int32_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].group != group) continue;
    const LayerGeometry& layer = layers_.geometry(i);
    for (const StateGeometry& state : layer.states) {
      char* const pool = static_cast<char*>(layers_[i].states->data());
      KVC_TRY(visit(pool + page * layer.page_bytes + state.offset_bytes, state.bytes));
    }
  }
  return Status();
}

Status RowCopy::read_states(int32_t group, int32_t page, uint8_t* bytes, void* stream) {
  return for_each_state(group, page, [&](const void* state, int64_t size) {
    Status read = layers_.context()->download(bytes, state, size, stream);
    bytes += size;
    return read;
  });
}

Status RowCopy::write_states(int32_t group, int32_t page, const uint8_t* bytes, void* stream) {
  return for_each_state(group, page, [&](void* state, int64_t size) {
    Status written = layers_.context()->upload(state, bytes, size, stream);
    bytes += size;
    return written;
  });
}

}  // namespace kvc

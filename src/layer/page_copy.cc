#include "layer/page_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace kvc {

Status PageCopy::create(const Layers& layers, std::unique_ptr<PageCopy>* out) {
  constexpr int64_t kAlignment = 16;
  std::unique_ptr<PageCopy> copy(new PageCopy(layers));
  const Geometry& geometry = layers.geometry();
  int64_t most_bytes = 0, most_rows = 0;
  for (int32_t g = 0; g < layers.num_groups(); ++g) {
    const GroupRules& rules = layers.rules(g);
    Group group;
    group.states = rules.holds_state();
    if (group.states) {
      group.bytes = RowCopy::state_bytes(layers, g);
    } else {
      group.rows = rules.rows_of(geometry.page_size);
      group.runs = RowCopy::runs(layers, g);
      group.bytes = group.rows * RowCopy::token_bytes(layers, g);
    }
    most_bytes = std::max(most_bytes, group.bytes);
    most_rows = std::max(most_rows, group.rows);
    copy->groups_.push_back(std::move(group));
  }
  copy->most_bytes_ = most_bytes;
  copy->slots_.resize(static_cast<size_t>(most_rows));
  if (!layers.context()->is_host()) {
    copy->slots_at_ = (most_bytes + kAlignment - 1) / kAlignment * kAlignment;
    const int64_t bytes = copy->slots_at_ + std::max<int64_t>(1, most_rows) * static_cast<int64_t>(sizeof(int64_t));
    KVC_TRY(DeviceMemory::allocate(layers.context(), bytes, DeviceMemory::kPageAlignment, false, &copy->staging_));
  }
  *out = std::move(copy);
  return Status();
}

// Copies the rows of a page between the pools and `rows`, which is in the device's memory.
Status PageCopy::move_rows(const Group& group, int32_t page, uint8_t* rows, bool store, void* stream) {
  const Context& context = *layers_.context();
  const auto slots = std::span(slots_).first(static_cast<size_t>(group.rows));
  std::iota(slots.begin(), slots.end(), page * group.rows);
  kvc_backend_gather args = {};
  args.num_tokens = group.rows;
  args.slots = slots.data();
  args.store = store ? 1 : 0;
  if (staging_) {
    KVC_TRY(context.upload(staging() + slots_at_, slots.data(), static_cast<int64_t>(slots.size_bytes()), stream));
    args.slots = reinterpret_cast<const int64_t*>(staging() + slots_at_);
    args.slots_on_device = 1;
  }
  for (auto run = group.runs.begin(); run != group.runs.end();) {  // all runs of a layer in one call
    const int32_t layer = run->layer;
    args.layer = &layers_[layer].backend;
    args.k = args.v = args.k_scale = args.v_scale = nullptr;
    void** const places[] = {&args.k, &args.v, &args.k_scale, &args.v_scale};
    for (; run != group.runs.end() && run->layer == layer; ++run) {
      *places[static_cast<size_t>(run->part)] = rows;
      rows += group.rows * run->token_bytes;
    }
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context.backend().gather(context.device(), &args, stream, &error), error));
  }
  return Status();
}

// Copies the states of a page between the pools and `bytes`, which is in the device's memory.
Status PageCopy::move_states(int32_t group, int32_t page, uint8_t* bytes, bool store, void* stream) {
  const Context& context = *layers_.context();
  for (int32_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].group != group) continue;
    const LayerGeometry& layer = layers_.geometry(i);
    for (const StateGeometry& state : layer.states) {
      char* const pool = static_cast<char*>(layers_[i].states->data()) + state.offset_bytes;
      if (!staging_) {
        char* const place = pool + page * layer.page_bytes;
        KVC_TRY(store ? context.upload(place, bytes, state.bytes, stream)
                      : context.download(bytes, place, state.bytes, stream));
        bytes += state.bytes;
        continue;
      }
      kvc_backend_states args = {};
      args.pool = pool;
      args.page_stride_bytes = layer.page_bytes;
      args.rows = bytes;
      args.row_stride_bytes = args.state_bytes = state.bytes;
      args.pages = &page;
      args.num_rows = 1;
      args.store = store ? 1 : 0;
      kvc_error error = KVC_ERROR_INIT;
      KVC_TRY(Status::from(context.backend().states(context.device(), &args, stream, &error), error));
      bytes += state.bytes;
    }
  }
  return Status();
}

Status PageCopy::move(int32_t group, int32_t page, uint8_t* bytes, bool store, void* stream) {
  const Group& of = groups_[static_cast<size_t>(group)];
  return of.states ? move_states(group, page, bytes, store, stream) : move_rows(of, page, bytes, store, stream);
}

Status PageCopy::begin_read(int32_t group, int32_t page, uint8_t* bytes, void* stream) {
  return move(group, page, staging_ ? staging() : bytes, false, stream);
}

Status PageCopy::end_read(int32_t group, uint8_t* bytes, void* stream) {
  if (!staging_) return Status();
  return layers_.context()->download(bytes, staging(), bytes_of(group), stream);
}

void PageCopy::for_each_other(int32_t group, int64_t position, std::span<const int64_t> held,
                              const std::function<void(int64_t, int64_t)>& clear) const {
  const Group& of = groups_[static_cast<size_t>(group)];
  const auto held_from_position = [&](int32_t layer) { return held[static_cast<size_t>(layer)] - position; };
  int64_t offset = 0;
  for (const RowRun& run : of.runs) {
    const int64_t tokens = std::clamp<int64_t>(held_from_position(run.layer), 0, layers_.geometry().page_size);
    const int64_t stored = layers_.rules(group).rows_of(tokens) * run.token_bytes, all = of.rows * run.token_bytes;
    if (stored < all) clear(offset + stored, all - stored);
    offset += all;
  }
  for (int32_t i = 0; of.states && i < layers_.size(); ++i) {
    if (layers_[i].group != group) continue;
    for (const StateGeometry& state : layers_.geometry(i).states) {
      if (held_from_position(i) < 0) clear(offset, state.bytes);
      offset += state.bytes;
    }
  }
}

Status PageCopy::write(int32_t group, int32_t page, const uint8_t* bytes, void* stream) {
  // The cast is safe: a backend that stores bytes in a page only reads them here.
  if (!staging_) return move(group, page, const_cast<uint8_t*>(bytes), true, stream);
  KVC_TRY(layers_.context()->upload(staging(), bytes, bytes_of(group), stream));
  return move(group, page, staging(), true, stream);
}

Status PageCopy::copy_out(int64_t offset, uint8_t* to, int64_t bytes, void* stream) const noexcept {
  return layers_.context()->copy_pinned(to, staging() + offset, bytes, false, stream);
}

Status PageCopy::wait(void* stream) const noexcept {
  return layers_.context()->copy_pinned(nullptr, nullptr, 0, true, stream);
}

Status PageCopy::write_from(int32_t group, int32_t page, const uint8_t* bytes, void* stream) {
  return move(group, page, const_cast<uint8_t*>(bytes), true, stream);  // the cast is safe, as in write
}

}  // namespace kvc

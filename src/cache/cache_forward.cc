// Forward steps: append, attend, end, abort, cancel.
#include <algorithm>
#include <cinttypes>

#include "cache/cache.h"
#include "cache/forward_use.h"
#include "tensor/tensor_overlap.h"

namespace kvc {

uint64_t Cache::forward_id(int32_t slot) const {
  return forward_ids_.make(forwards_[static_cast<size_t>(slot)]->generation, slot);
}

Status Cache::resolve_forward(kvc_forward id, int32_t* slot) const {
  const int32_t candidate = forward_ids_.slot_of(id);
  const bool in_range = candidate >= 0 && candidate < static_cast<int32_t>(forwards_.size());
  const Forward* forward = in_range ? forwards_[static_cast<size_t>(candidate)].get() : nullptr;
  if (forward == nullptr || !(forward->open || forward->graph) || forward_id(candidate) != id) {
    return Status::error(KVC_ERROR_STALE_ID, "forward %" PRIu64 " is not open in this cache", id);
  }
  if (!forward->open) return Status::error(KVC_ERROR_STALE, "no forward is open in graph %" PRIu64, id);
  *slot = candidate;
  return Status();
}

// Whoever comes next on another stream runs behind what the step has enqueued, whose pages may be theirs.
Status Cache::close(Forward& forward, bool keep) {
  Status left = order_.check_stream(forward.stream);
  if (!left.ok()) return left;
  left = forward.unstage();
  if (Status ordered = order_.leave(forward.stream); left.ok()) left = std::move(ordered);
  give_back(forward, keep && left.ok());
  return left;
}

void Cache::give_back(Forward& forward, bool keep) {
  if (forward.kind.with_trees) store_.close_nodes(forward.row_slots(), forward.row_lengths(), keep);
  if (keep) {
    store_.commit(forward.row_slots(), forward.row_lengths(), forward.row_reservations(num_groups()), forward.kind);
  } else {
    store_.rollback(forward.row_slots(), forward.row_reservations(num_groups()));
  }
  copy_queue_.close_step(&forward, keep);
  forward.tables.close(*context_, forward.stream);
  forward.open = false;
  context_->pool().keep_awake(-1);
}

Status Cache::end(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  if (forward.in_use) return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " is in use by another thread", id);
  if (__atomic_load_n(&forward.cancelled, __ATOMIC_RELAXED) != 0) {
    return Status::error(KVC_ERROR_CANCELLED, "forward %" PRIu64 " was cancelled", id);
  }
  KVC_TRY(check_complete(forward));
  return close(forward, true);
}

// Whether the tokens of a step go to a layer.
bool Cache::appends(const Forward& forward, int32_t layer) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.kv_layer >= 0 || l.states) return false;
  return forward.kind.encoder_group < 0 ? !rules(l).holds_encoder() : l.group == forward.kind.encoder_group;
}

// Whether all layers in range have what end keeps.
Status Cache::check_complete(const Forward& forward) const {
  for (int32_t layer = forward.kind.layers.begin; layer < forward.kind.layers.end; ++layer) {
    const auto index = static_cast<size_t>(layer);
    if (forward.batch->rows().num_tokens == 0) continue;  // nothing to append
    if (layers_[index].states && forward.kind.encoder_group < 0) {
      const size_t states = geometry_.layers[index].states.size();
      const uint32_t missing = ((1u << states) - 1) & ~forward.states_of(index);
      if (missing == 0) continue;
      return Status::error(KVC_ERROR_ORDER, "state %d of layer %d was not stored", __builtin_ctz(missing), layer)
          .at(layer);
    }
    if (geometry_.tables_only || !appends(forward, layer)) continue;
    if (forward.has_append(index)) continue;
    return Status::error(KVC_ERROR_ORDER, "layer %d was not appended", layer).at(layer);
  }
  return Status();
}

Status Cache::abort(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  if (forward.in_use)
    return Status::error(KVC_ERROR_BUSY, "forward %" PRIu64 " computes on another thread: cancel it first", id);
  return close(forward, false);
}

Status Cache::cancel(kvc_forward id) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  __atomic_store_n(&forwards_[static_cast<size_t>(slot)]->cancelled, 1, __ATOMIC_RELAXED);
  return Status();
}

Status Cache::info(kvc_forward id, kvc_forward_info* out) {
  MutexLock lock(mutex_);
  int32_t slot = -1;
  KVC_TRY(resolve_forward(id, &slot));
  Forward& forward = *forwards_[static_cast<size_t>(slot)];
  const kvc_backend_rows& rows = forward.batch->rows();
  static constexpr int64_t kStride = 1;
  out->num_sequences = rows.num_rows;
  out->num_tokens = rows.num_tokens;
  out->positions_host = rows.positions;
  out->last_rows_host = forward.batch->last_rows();
  const auto tensor = [&](const int32_t* data, int64_t* shape) {
    return DLTensor{const_cast<int32_t*>(data),
                    context_->dl_device(),
                    1,
                    {kDLInt, 32, 1},
                    shape,
                    const_cast<int64_t*>(&kStride),
                    0};
  };
  const int32_t *positions, *last_rows;
  forward.device_rows(&positions, &last_rows);
  out->positions = tensor(positions, &forward.info_shapes[0]);
  out->last_rows = tensor(last_rows, &forward.info_shapes[1]);
  return Status();
}

Status Cache::check_forward_layer(const Forward& forward, int32_t layer) const {
  KVC_TRY(check_layer(layer));
  if (layer >= forward.kind.layers.begin && layer < forward.kind.layers.end) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %d is outside the forward's layers [%d, %d)", layer,
                       forward.kind.layers.begin, forward.kind.layers.end)
      .at(layer);
}

RowsSpec Cache::rows_spec(const char* name, int64_t tokens, int64_t heads, int64_t dims, bool written) const {
  return {name, tokens, heads, dims, context_->dl_device(), written};
}

// Refuses a layer that a step does not append to.
Status Cache::check_appends(const Forward& forward, int32_t layer) const {
  if (appends(forward, layer)) return Status();
  const Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.kv_layer >= 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d stores no k and v: it reads layer %d's", layer,
                         l.kv_layer)
        .at(layer);
  }
  const char* why = "the forward appends encoder tokens of another group";
  if (l.states) {
    why = "it is recurrent";
  } else if (forward.kind.encoder_group < 0) {
    why = "its encoder tokens come in forwards of their encoder_group";
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d takes no k and v: %s", layer, why).at(layer);
}

Status Cache::check_kv(const Forward& forward, int32_t layer, const KvTensors& tensors, NewKv* out) const {
  KVC_TRY(check_appends(forward, layer));
  if ((forward.layer_state[static_cast<size_t>(layer)] & Forward::kAppended) != 0) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was appended already in this forward", layer).at(layer);
  }
  out->as_stored = tensors.as_stored;
  return check_kv_rows(tensors, layers_[static_cast<size_t>(layer)].backend, forward.tensor_rows(),
                       context_->dl_device(), &out->rows);
}

// Whether stored keys are raw, and turn where they are read.
bool Cache::on_read(const kvc_backend_layer& layer) const {
  return layer.rope_class >= 0 && rope_tables_.rope(static_cast<size_t>(layer.rope_class)).on_read;
}

// A caller's cos and sin, or null.
Status Cache::check_rotation(const Forward& forward, int32_t layer, const DLTensor* cos_sin, const float** out) const {
  *out = nullptr;
  if (cos_sin == nullptr) return Status();
  const kvc_backend_layer& shape = layers_[static_cast<size_t>(layer)].backend;
  if (shape.rope_class < 0 || on_read(shape)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin is given, and layer %d does not rotate on append",
                         layer)
        .at(layer);
  }
  return check_cos_sin(*cos_sin, "rope_cos_sin", forward.tensor_rows(), shape.rope_dim / 2, context_->dl_device(), out);
}

// cos and sin for the tokens of a step: the caller's, those of the layer's RoPE class, or null where nothing turns.
Status Cache::find_rotation(Forward& forward, const kvc_backend_layer& layer, const float* given,
                            const float** out) const {
  *out = given;
  if (layer.rope_class < 0 || given != nullptr) return Status();
  return forward.cos_sin(*context_, rope_tables_, static_cast<size_t>(layer.rope_class), out);
}

Status Cache::run_append(Forward& forward, int32_t layer, const NewKv& kv) {
  const Layer& target = layers_[static_cast<size_t>(layer)];
  kvc_backend_append args = {};
  args.layer = &target.backend;
  args.num_tokens = forward.batch->rows().num_tokens;
  args.slots = forward.batch->slot_mapping(target.group);
  args.k = kv.rows.k;
  args.v = kv.rows.v;
  args.k_scale = kv.rows.k_scale;
  args.v_scale = kv.rows.v_scale;
  args.step = forward.step();
  if (!kv.as_stored && !on_read(*args.layer)) KVC_TRY(find_rotation(forward, *args.layer, kv.cos_sin, &args.cos_sin));
  if (forward.tensor_rows() > 0) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context_->backend().append(context_->device(), &args, forward.stream, &error), error));
  }
  forward.note_append(static_cast<size_t>(layer));
  return Status();
}

Status Cache::append(kvc_forward id, int32_t layer, const kvc_append_args& args) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter_unless_cancelled(id));
  KVC_TRY(check_forward_layer(*forward, layer));
  KVC_TRY(check_has_storage(layer));
  if ((args.flags & ~uint32_t{KVC_APPEND_AS_STORED}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  NewKv kv;
  const bool as_stored = (args.flags & KVC_APPEND_AS_STORED) != 0;
  KVC_TRY(check_kv(*forward, layer, {args.k, args.v, args.k_scale, args.v_scale, as_stored}, &kv));
  KVC_TRY(check_rotation(*forward, layer, args.rope_cos_sin, &kv.cos_sin));
  if (kv.as_stored && args.rope_cos_sin != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin contradicts KVC_APPEND_AS_STORED").at(layer);
  }
  return forward.done(run_append(*forward, layer, kv));
}

namespace {

// Which parts of a layer's attention a call computes, as bits of Forward::layer_state.
uint8_t parts_of(uint32_t flags) {
  if ((flags & KVC_ATTEND_PAST) != 0) return Forward::kAttendedPast;
  if ((flags & KVC_ATTEND_SELF) != 0) return Forward::kAttendedSelf;
  return Forward::kAttendedPast | Forward::kAttendedSelf;
}

Status check_attend_flags(uint32_t flags) {
  if ((flags & ~uint32_t{KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_PAST | KVC_ATTEND_SELF}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", flags);
  }
  if ((flags & KVC_ATTEND_PAST) == 0 || (flags & KVC_ATTEND_SELF) == 0) return Status();
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: PAST and SELF are two calls", flags);
}

Status check_option(double value, double smallest, const char* name) {
  if (value == 0.0 || (value >= smallest && value <= 1e30)) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %g is not 0 and not in %g..1e30", name, value, smallest);
}

Status read_attend_options(const kvc_attend_args& args, int32_t num_q_heads, DLDevice device,
                           kvc_backend_attend* attend) {
  KVC_TRY(check_option(args.softmax_scale, 1e-30, "softmax_scale"));
  KVC_TRY(check_option(args.softcap, 1e-6, "softcap"));
  attend->flags = args.flags;
  attend->softmax_scale = args.softmax_scale;
  attend->softcap = args.softcap;
  if (args.alibi_slopes != nullptr) {
    KVC_TRY(check_heads(args.alibi_slopes, "alibi_slopes", num_q_heads, device, &attend->alibi_slopes));
  }
  if (args.sinks == nullptr) return Status();
  return check_heads(args.sinks, "sinks", num_q_heads, device, &attend->sinks);
}

// The rows of a step's tokens in a tensor.
struct Rows {
  const char* name;
  const kvc_backend_tensor& tensor;
  int64_t heads, dims;

  bool apart_from(const Rows& other, int64_t tokens) const noexcept {
    const auto* begin = static_cast<const char*>(tensor.data);
    const auto* others = static_cast<const char*>(other.tensor.data);
    if (begin == nullptr || others == nullptr) return true;
    return begin + extent(tokens) <= others || others + other.extent(tokens) <= begin;
  }
  TensorView view(int64_t tokens) const noexcept {
    TensorView view;
    view.data = static_cast<char*>(tensor.data);
    view.dtype = tensor.dtype;
    view.rank = 3;
    const int64_t shape[3] = {tokens, heads, dims}, strides[3] = {tensor.token_stride, tensor.head_stride, 1};
    std::copy_n(shape, 3, view.shape);
    std::copy_n(strides, 3, view.strides);
    return view;
  }

 private:
  int64_t extent(int64_t tokens) const noexcept {
    return ((tokens - 1) * tensor.token_stride + (heads - 1) * tensor.head_stride + dims) * (tensor.dtype.bits / 8);
  }
};

}  // namespace

// What attention writes has no element of what it reads. Tensors apart from each other, as they mostly are, are seen by
// their ends alone.
Status Cache::check_outputs(int32_t layer, const LatentCall& call, const KvRows& kv, int64_t tokens) const {
  const kvc_backend_layer& shape = layers_[static_cast<size_t>(layer)].backend;
  const kvc_backend_attend& attend = call.attend;
  const int64_t heads = shape.num_q_heads, kv_heads = shape.num_kv_heads;
  const int64_t q_dims = call.shape.nope_dims + call.shape.rotary_dims();
  const int64_t k_dims = shape.v_in_k != 0 && kv.v.data != nullptr ? shape.head_dim - shape.v_head_dim : shape.head_dim;
  const kvc_backend_tensor lse = {attend.lse, attend.lse_token_stride, attend.lse_head_stride, {kDLFloat, 32, 1}, 0};
  const Rows written[] = {{"out", attend.out, heads, call.shape.v_dims}, {"lse", lse, heads, 1}};
  const Rows read[] = {
      {"q", attend.q, heads, q_dims}, {"k", kv.k, kv_heads, k_dims}, {"v", kv.v, kv_heads, shape.v_head_dim}};
  const auto check = [&](const Rows& a, const Rows& b) {
    if (tokens == 0 || a.apart_from(b, tokens)) return Status();
    const TensorView view_a = a.view(tokens), view_b = b.view(tokens);
    const NamedTensor out = {a.name, &view_a}, in = {b.name, &view_b};
    return check_overlaps(&out, 1, &in, 1);
  };
  KVC_TRY(check(written[0], written[1]));
  for (const Rows& out : written) {
    for (const Rows& in : read) KVC_TRY(check(out, in));
  }
  return Status();
}

// Attention in the backend, by up-projections if the call has them.
Status Cache::run_attend(Forward& forward, int32_t layer, LatentCall* call) {
  kvc_backend_attend* args = &call->attend;
  const Layer& source = layers_[static_cast<size_t>(layer)];
  if (rules(source).holds_encoder()) args->flags |= KVC_ATTEND_NON_CAUSAL;
  args->layer = &source.backend;
  args->rows = &forward.batch->rows(source.group);
  args->tables = &forward.batch->tables(source.group);
  args->cancel_host = &forward.cancelled;
  args->step = forward.step();
  KVC_TRY(find_rotation(forward, *args->layer, args->cos_sin, &args->cos_sin));
  const bool given = call->rope_given;
  if (args->cos_sin != nullptr && !given && (args->rows->stream_windows != nullptr || forward.graph)) {
    const auto rope_class = static_cast<size_t>(args->layer->rope_class);
    KVC_TRY(forward.cos_sin_sinks(*context_, rope_tables_, rope_class, &args->cos_sin_sinks));
  }
  if (const auto rope = static_cast<size_t>(args->layer->rope_class); on_read(*args->layer)) {
    args->key_tables = rope_tables_.data(rope);
    args->key_sets = forward.rope_sets_of(rope);
  }
  if (call->w_uk.data != nullptr) {
    call->slots = forward.batch->slot_mapping(source.group);
    KVC_TRY(forward.latent->attend(*context_, *call, forward.stream));
    forward.layer_state[static_cast<size_t>(layer)] |= parts_of(args->flags);
    return Status();
  }
  const WorkPlan& plan = forward.work_plan(source.work_class, args->flags);
  args->planned = forward.plan_is_staged(source.work_class) ? 1 : 0;
  args->items = plan.items().data();
  args->num_items = static_cast<int64_t>(plan.items().size());
  args->tiles = plan.tiles().data();
  args->num_tiles = static_cast<int64_t>(plan.tiles().size());
  args->spans = plan.spans().data();
  args->num_spans = static_cast<int64_t>(plan.spans().size());
  args->parts = plan.parts().data();
  args->num_parts = static_cast<int64_t>(plan.parts().size());
  args->tile_counters = forward.tile_counters();
  args->partials = forward.partials();
  args->fold_keys = plan.shape().fixed_splits ? plan.shape().tiling.split_align : 0;
  std::fill_n(args->tile_counters, args->num_tiles, 0);
  if (args->num_items > 0 || forward.tensor_rows() > 0) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context_->backend().attend(context_->device(), args, forward.stream, &error), error));
  }
  forward.layer_state[static_cast<size_t>(layer)] |= parts_of(args->flags);
  return Status();
}

// Whether a layer can attend now, by kind and order.
Status Cache::check_attends(const Forward& forward, int32_t layer, const kvc_attend_args& args) const {
  const Layer& l = layers_[static_cast<size_t>(layer)];
  if (l.states) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d is recurrent: it has states, and nothing to attend to",
                         layer)
        .at(layer);
  }
  if (forward.kind.encoder_group >= 0) {
    return Status::error(KVC_ERROR_ORDER,
                         "the forward appends encoder tokens (encoder_group %d): nothing attends in it",
                         forward.kind.encoder_group + 1)
        .at(layer);
  }
  if ((forward.layer_state[static_cast<size_t>(layer)] & parts_of(args.flags)) != 0) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was attended already in this forward", layer).at(layer);
  }
  const bool past = (args.flags & KVC_ATTEND_PAST) != 0;
  if (rules(l).holds_encoder()) {
    if (!past && (args.flags & KVC_ATTEND_SELF) == 0) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: cross layer %d has no parts", args.flags, layer)
        .at(layer);
  }
  const int32_t stored = l.kv_layer >= 0 ? l.kv_layer : layer;
  if (stored < forward.kind.layers.begin) {
    return Status::error(KVC_ERROR_ORDER, "layer %d reads the K and V of layer %d, outside of the forward's [%d, %d)",
                         layer, stored, forward.kind.layers.begin, forward.kind.layers.end)
        .at(layer);
  }
  const bool appended = (forward.layer_state[static_cast<size_t>(stored)] & Forward::kAppended) != 0;
  if (args.k != nullptr || appended || past) return Status();
  return Status::error(KVC_ERROR_ORDER, "layer %d has no k and v, and layer %d was not appended before", layer, stored)
      .at(layer);
}

Status Cache::attend(kvc_forward id, int32_t layer, const kvc_attend_args& args) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter_unless_cancelled(id));
  KVC_TRY(check_forward_layer(*forward, layer));
  KVC_TRY(check_has_storage(layer));
  KVC_TRY(check_attend_flags(args.flags));
  const kvc_backend_layer& shape = layers_[static_cast<size_t>(layer)].backend;
  if (shape.v_in_k != 0 ? args.k == nullptr && args.v != nullptr : (args.k == nullptr) != (args.v == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL and %s is not: give both or neither",
                         args.k == nullptr ? "k" : "v", args.k == nullptr ? "v" : "k");
  }
  KVC_TRY(check_attends(*forward, layer, args));
  const int64_t tokens = forward->tensor_rows();
  LatentCall call = {};
  kvc_backend_attend& attend = call.attend;
  NewKv kv;
  KVC_TRY(read_projections(args, shape, context_->dl_device(), &call));
  const int64_t q_dims = call.shape.nope_dims + call.shape.rotary_dims(), out_dims = call.shape.v_dims;
  KVC_TRY(check_rows(args.q, rows_spec("q", tokens, shape.num_q_heads, q_dims, false), &attend.q));
  if (args.k != nullptr) KVC_TRY(check_kv(*forward, layer, {args.k, args.v, nullptr, nullptr, false}, &kv));
  KVC_TRY(check_rotation(*forward, layer, args.rope_cos_sin, &kv.cos_sin));
  if (args.rope_cos_sin != nullptr &&
      forward->batch->rows(layers_[static_cast<size_t>(layer)].group).stream_windows != nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "rope_cos_sin is given, and a sequence is longer than its streaming window: layer %d rotates "
                         "its q a second time for the sinks",
                         layer)
        .at(layer);
  }
  attend.cos_sin = kv.cos_sin;
  call.rope_given = kv.cos_sin != nullptr;
  KVC_TRY(check_rows(args.out, rows_spec("out", tokens, shape.num_q_heads, out_dims, true), &attend.out));
  if (args.lse != nullptr) {
    KVC_TRY(check_lse(args.lse, rows_spec("lse", tokens, shape.num_q_heads, 1, true), &attend.lse,
                      &attend.lse_token_stride, &attend.lse_head_stride));
  }
  KVC_TRY(read_attend_options(args, shape.num_q_heads, context_->dl_device(), &attend));
  KVC_TRY(check_outputs(layer, call, kv.rows, tokens));
  if (args.k != nullptr) KVC_TRY(forward.done(run_append(*forward, layer, kv)));
  return forward.done(run_attend(*forward, layer, &call));
}

}  // namespace kvc

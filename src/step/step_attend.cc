// Computes attention in a step, after checks of the layer, the options and the tensors.
#include <algorithm>
#include <cinttypes>

#include "base/checked.h"
#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"
#include "step/step.h"
#include "tensor/key_lists.h"
#include "tensor/score_biases.h"
#include "tensor/tensor_overlap.h"

namespace kvc {
namespace {

// Which parts of a layer's attention a call computes, as bits of LayerCalls.
uint8_t parts_of(uint32_t flags) {
  if ((flags & KVC_ATTEND_PAST) != 0) return LayerCalls::kPast;
  if ((flags & KVC_ATTEND_SELF) != 0) return LayerCalls::kSelf;
  return LayerCalls::kPast | LayerCalls::kSelf;
}

Status check_attend_flags(uint32_t flags) {
  constexpr uint32_t kKnown = KVC_ATTEND_NON_CAUSAL | KVC_ATTEND_PAST | KVC_ATTEND_SELF | KVC_ATTEND_ALIBI_SIGNED |
                              KVC_ATTEND_REL_BIAS_ZERO | KVC_ATTEND_NO_SPANS | KVC_ATTEND_STEP_WINDOW;
  if ((flags & ~kKnown) != 0) {
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
  attend->softmax_scale = args.softmax_scale;
  attend->softcap = args.softcap;
  if (args.alibi_slopes != nullptr) {
    KVC_TRY(check_heads(args.alibi_slopes, "alibi_slopes", num_q_heads, device, &attend->alibi_slopes));
  }
  if (args.sinks == nullptr) return Status();
  return check_heads(args.sinks, "sinks", num_q_heads, device, &attend->sinks);
}

// Refuses options that do not work with compressed rows. A compressed row represents several tokens. So the row has no
// single distance to a query. Some of its tokens may be in earlier steps, and others in this step.
Status check_compressed_attend(const kvc_attend_args& args, int64_t tokens_per_row) {
  const struct {
    const char* name;
    bool given;
  } options[] = {{"PAST", (args.flags & KVC_ATTEND_PAST) != 0},
                 {"SELF", (args.flags & KVC_ATTEND_SELF) != 0},
                 {"alibi_slopes", args.alibi_slopes != nullptr},
                 {"rel_bias", args.rel_bias != nullptr},
                 {"w_uk", args.w_uk != nullptr}};
  for (const auto& option : options) {
    if (!option.given) continue;
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s, and a row of the layer stands for %" PRId64 " tokens", option.name,
                         tokens_per_row);
  }
  return Status();
}

// The rows of a call in one tensor. Two of them are compared to find overlaps.
struct Rows {
  const char* name;
  const kvc_backend_tensor& tensor;
  int64_t tokens, heads, dims;

  bool apart_from(const Rows& other) const noexcept {
    const auto* begin = static_cast<const char*>(tensor.data);
    const auto* others = static_cast<const char*>(other.tensor.data);
    if (begin == nullptr || others == nullptr || tokens * dims == 0 || other.tokens * other.dims == 0) return true;
    return begin + extent() <= others || others + other.extent() <= begin;
  }
  TensorView view() const noexcept { return view_of(tensor, tokens, heads, dims); }

 private:
  int64_t extent() const noexcept {
    return ((tokens - 1) * tensor.token_stride + (heads - 1) * tensor.head_stride + dims) * element_bytes(tensor.dtype);
  }
};

}  // namespace

// Checks that no written tensor shares an element with a tensor that is read, or with another written tensor. In most
// calls, the address ranges of the tensors do not overlap, so only the ends of these ranges are compared.
Status Step::check_outputs(int32_t layer, const LatentCall& call, const KvRows& kv, int64_t tokens) const {
  const kvc_backend_layer& shape = layers_[layer].backend;
  const kvc_backend_attend& attend = call.attend;
  const int64_t heads = shape.num_q_heads, kv_heads = shape.num_kv_heads;
  const int64_t q_dims = call.shape.nope_dims + call.shape.rotary_dims();
  const kvc_backend_lists& lists = attend.lists;
  const int64_t list_heads = lists.head_stride == 0 ? 1 : kv_heads;
  const kvc_backend_tensor entries = {
      const_cast<int32_t*>(lists.entries), lists.token_stride, lists.head_stride, {kDLInt, 32, 1}, 0};
  const int64_t k_dims = shape.row_kind == KVC_BACKEND_ROW_LATENT && kv.v.data != nullptr
                             ? shape.head_dim - shape.v_head_dim
                             : shape.head_dim;
  const kvc_backend_tensor lse = {attend.lse, attend.lse_token_stride, attend.lse_head_stride, {kDLFloat, 32, 1}, 0};
  const auto head_numbers = [](const float* data) {
    return kvc_backend_tensor{const_cast<float*>(data), 0, 1, {kDLFloat, 32, 1}, 0};
  };
  const kvc_backend_tensor alibi_slopes = head_numbers(attend.alibi_slopes), sinks = head_numbers(attend.sinks);
  const int64_t appended = forward_->appended_rows(layers_[layer].group);
  const Rows written[] = {{"out", attend.out, tokens, heads, call.shape.v_dims}, {"lse", lse, tokens, heads, 1}};
  const Rows read[] = {{"q", attend.q, tokens, heads, q_dims},
                       {"k", kv.k, appended, kv_heads, k_dims},
                       {"v", kv.v, appended, kv_heads, shape.v_head_dim},
                       {"indices", entries, tokens, list_heads, lists.num_entries},
                       {"alibi_slopes", alibi_slopes, 1, heads, 1},
                       {"sinks", sinks, 1, heads, 1}};
  const auto check = [&](const Rows& a, const Rows& b) {
    if (a.apart_from(b)) return Status();
    const TensorView view_a = a.view(), view_b = b.view();
    const NamedTensor out = {a.name, &view_a}, in = {b.name, &view_b};
    return check_overlaps(&out, 1, &in, 1);
  };
  KVC_TRY(check(written[0], written[1]));
  for (const Rows& out : written) {
    for (const Rows& in : read) KVC_TRY(check(out, in));
  }
  return Status();
}

// Checks the shape of a call's lists of keys. If the device is the host, also checks every entry of the step's tokens.
// tokens: the number of rows of the call's tensors.
Status Step::check_lists(int32_t layer, const kvc_attend_args& args, int64_t tokens, kvc_backend_lists* out) const {
  if (args.indices == nullptr) {
    if (args.index_block == 0) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "index_block is %d, and indices is NULL", args.index_block);
  }
  KVC_TRY(check_attends_lists(context().backend()));
  const int64_t shape[3] = {tokens, -1, -1}, kv_heads = layers_[layer].backend.num_kv_heads;
  TensorView view;
  KVC_TRY(read_key_lists(args.indices, {"indices", context().dl_device(), 3, shape, "[tokens, 1 or kv heads, entries]"},
                         kv_heads, args.index_block == 0 ? 1 : args.index_block, &view, out));
  if (!context().is_host()) return Status();
  return check_entries(*out, forward_->batch->rows(layers_[layer].group), "indices", kv_heads);
}

// Checks the biases and the mask of a call, and flags that depend on them or on trees. The q and the outputs of
// `call` must have been read.
Status Step::check_biases(int32_t layer, const kvc_attend_args& args, const LatentCall& call,
                          kvc_backend_bias* out) const {
  const kvc_backend_layer& shape = layers_[layer].backend;
  const kvc_backend_rows& rows = forward_->batch->rows(layers_[layer].group);
  if ((args.flags & KVC_ATTEND_STEP_WINDOW) != 0 && rows.tree_begin != nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x: STEP_WINDOW in a step with trees", args.flags);
  }
  if ((args.flags & KVC_ATTEND_REL_BIAS_ZERO) != 0 && args.rel_bias == nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: REL_BIAS_ZERO, and rel_bias is NULL", args.flags);
  }
  if (args.rel_bias == nullptr && args.key_bias == nullptr && args.mask == nullptr) return Status();
  KVC_TRY(check_takes_biases(context().backend(), args));
  if (forward_->replayed() && (args.key_bias != nullptr || args.mask != nullptr)) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "%s in a graph: a later step may have more keys",
                         args.key_bias != nullptr ? "key_bias" : "mask");
  }
  const int64_t tokens = forward_->tensor_rows();
  BiasViews views;
  KVC_TRY(read_biases(args, {rows, tokens, shape.num_q_heads, shape.num_kv_heads, context().dl_device()}, &views, out));
  const kvc_backend_attend& attend = call.attend;
  const kvc_backend_tensor lse = {attend.lse, attend.lse_token_stride, attend.lse_head_stride, {kDLFloat, 32, 1}, 0};
  const TensorView out_view = Rows{"out", attend.out, tokens, shape.num_q_heads, call.shape.v_dims}.view();
  const TensorView lse_view = Rows{"lse", lse, tokens, shape.num_q_heads, 1}.view();
  const NamedTensor written[] = {{"out", &out_view}, {"lse", &lse_view}};
  const NamedTensor read[] = {{"rel_bias", &views.rel_bias}, {"key_bias", &views.key_bias}, {"mask", &views.mask}};
  if (tokens == 0) return Status();
  for (const NamedTensor& tensor : written) KVC_TRY(check_overlaps(&tensor, 1, read, 3));
  return Status();
}

// Runs attention in the backend. A call with up-projections goes through LatentScratch.
Status Step::run_attend(int32_t layer, LatentCall* call) {
  kvc_backend_attend* args = &call->attend;
  const Layer& source = layers_[layer];
  const bool holds_encoder = layers_.rules(source).holds_encoder();
  const uint32_t flags = call->flags | (holds_encoder ? uint32_t{KVC_ATTEND_NON_CAUSAL} : 0);
  const bool streams = forward_->batch->rows(source.group).stream_windows != nullptr;
  args->layer = &source.backend;
  args->cancel_host = &forward_->cancelled;
  KVC_TRY(find_rotation(*args->layer, args->cos_sin, &args->cos_sin));
  if (args->cos_sin != nullptr && !call->rope_given && (streams || forward_->graph)) {
    const auto rope_class = static_cast<size_t>(args->layer->rope_class);
    KVC_TRY(forward_->cos_sin_sinks(context(), layers_.rope_tables(), rope_class, &args->cos_sin_sinks));
  }
  if (const auto rope = static_cast<size_t>(args->layer->rope_class); layers_.rotates_on_read(*args->layer)) {
    args->key_tables = layers_.rope_tables().data(rope);
  }
  if (call->w_uk.data != nullptr) {
    call->slots = holds_encoder ? nullptr : forward_->batch->backend_slots(source.group);
    call->plan = forward_->plan_without_items(source.work_class, flags);
    KVC_TRY(forward_->latent->attend(context(), *call, &forward_->device_step(), forward_->stream));
  } else {
    KVC_TRY(forward_->plan(source.work_class, flags, WorkPlan::listed_keys(args->lists), &args->plan));
    const bool calls = args->plan->num_items > 0 || forward_->tensor_rows() > 0;
    kvc_error error = KVC_ERROR_INIT;
    if (calls) {
      KVC_TRY(Status::from(context().backend().attend(context().device(), args, forward_->stream, &error), error));
    }
  }
  forward_->calls.note_attend(static_cast<size_t>(layer), parts_of(flags));
  return Status();
}

// Checks that the kind of the layer, and earlier calls of the step, allow this attend.
Status Step::check_attends(int32_t layer, const kvc_attend_args& args) const {
  const Layer& l = layers_[layer];
  if (l.states) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d is recurrent: it has states, and nothing to attend to",
                         layer)
        .at(layer);
  }
  if (kernels::keys_only(l.backend)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %d stores keys only: kvc_forward_select scores them, and nothing attends to them",
                         layer)
        .at(layer);
  }
  if (forward_->kind.encoder_group >= 0) {
    return Status::error(KVC_ERROR_ORDER, "the forward appends encoder tokens of group %d: nothing attends in it",
                         forward_->kind.encoder_group)
        .at(layer);
  }
  if (forward_->calls.attended(static_cast<size_t>(layer), parts_of(args.flags))) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was attended already in this forward", layer).at(layer);
  }
  if (compresses(l)) KVC_TRY(check_compressed_attend(args, layers_.rules(l).tokens_per_row));
  const bool past = (args.flags & KVC_ATTEND_PAST) != 0;
  if (layers_.rules(l).holds_encoder()) {
    if (!past && (args.flags & KVC_ATTEND_SELF) == 0) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "flags 0x%x: cross layer %d has no parts", args.flags, layer)
        .at(layer);
  }
  const int32_t stored = l.kv_layer >= 0 ? l.kv_layer : layer;
  if (stored < forward_->kind.layers.begin) {
    return Status::error(KVC_ERROR_ORDER, "layer %d reads the K and V of layer %d, outside of the forward's [%d, %d)",
                         layer, stored, forward_->kind.layers.begin, forward_->kind.layers.end)
        .at(layer);
  }
  const bool appended = has_appended(stored);
  if (args.k != nullptr || appended || past) return Status();
  if (stored != layer) {
    return Status::error(KVC_ERROR_ORDER, "layer %d reads the K and V of layer %d, which was not appended before",
                         layer, stored)
        .at(layer);
  }
  return Status::error(KVC_ERROR_ORDER, "layer %d has no k and v, and was not appended before", layer).at(layer);
}

Status Step::check_attend(int32_t layer, const kvc_attend_args& args, LatentCall* call, NewKv* kv) const {
  KVC_TRY(layers_.check_has_storage(layer));
  KVC_TRY(check_attend_flags(args.flags));
  const kvc_backend_layer& shape = layers_[layer].backend;
  if (shape.row_kind == KVC_BACKEND_ROW_LATENT ? args.k == nullptr && args.v != nullptr
                                               : (args.k == nullptr) != (args.v == nullptr)) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL and %s is not: give both or neither",
                         args.k == nullptr ? "k" : "v", args.k == nullptr ? "v" : "k");
  }
  KVC_TRY(check_attends(layer, args));
  const int64_t tokens = forward_->tensor_rows();
  kvc_backend_attend& attend = call->attend;
  KVC_TRY(read_projections(args, shape, context().dl_device(), call));
  const int64_t q_dims = call->shape.nope_dims + call->shape.rotary_dims(), out_dims = call->shape.v_dims;
  KVC_TRY(check_rows(args.q, rows_spec("q", tokens, shape.num_q_heads, q_dims, false), &attend.q));
  if (args.k != nullptr) KVC_TRY(check_kv(layer, {args.k, args.v, nullptr, nullptr, false}, kv));
  KVC_TRY(check_rotation(layer, args.rope_cos_sin, &kv->cos_sin));
  if (args.rope_cos_sin != nullptr && forward_->batch->rows(layers_[layer].group).stream_windows != nullptr) {
    return Status::error(KVC_ERROR_UNSUPPORTED,
                         "rope_cos_sin is given, and a sequence is longer than its streaming window: layer %d rotates "
                         "its q a second time for the sinks",
                         layer);
  }
  attend.cos_sin = kv->cos_sin;
  call->rope_given = kv->cos_sin != nullptr;
  KVC_TRY(check_rows(args.out, rows_spec("out", tokens, shape.num_q_heads, out_dims, true), &attend.out));
  if (args.lse != nullptr) {
    KVC_TRY(check_lse(args.lse, rows_spec("lse", tokens, shape.num_q_heads, 1, true), &attend.lse,
                      &attend.lse_token_stride, &attend.lse_head_stride));
  }
  call->flags = args.flags;
  KVC_TRY(read_attend_options(args, shape.num_q_heads, context().dl_device(), &attend));
  KVC_TRY(check_lists(layer, args, tokens, &attend.lists));
  KVC_TRY(check_biases(layer, args, *call, &attend.bias));
  return check_outputs(layer, *call, kv->rows, tokens);
}

Status Step::attend(int32_t layer, const kvc_attend_args& args) {
  KVC_TRY(check_forward_layer(layer));
  LatentCall call = {};
  NewKv kv;
  if (Status checked = check_attend(layer, args, &call, &kv); !checked.ok()) {
    return std::move(checked).in_layer(layer);
  }
  if (args.k != nullptr) KVC_TRY(run(run_append(layer, kv)));
  return run(run_attend(layer, &call));
}

}  // namespace kvc

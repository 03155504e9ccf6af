// Appends K and V in a step, after checks of the layer and of the tensors.
#include <algorithm>
#include <cinttypes>

#include "step/step.h"

namespace kvc {

Status Step::check_forward_layer(int32_t layer) const {
  KVC_TRY(layers_.check_layer(layer));
  if (layer >= forward_->kind.layers.begin && layer < forward_->kind.layers.end) return Status();
  return Status::error(KVC_ERROR_OUT_OF_RANGE, "layer %d is outside the forward's layers [%d, %d)", layer,
                       forward_->kind.layers.begin, forward_->kind.layers.end)
      .at(layer);
}

bool Step::has_appended(int32_t layer) const noexcept {
  const Layer& l = layers_[layer];
  return forward_->calls.appended(static_cast<size_t>(layer)) ||
         (compresses(l) && forward_->batch->num_appended(l.group) == 0);
}

RowsSpec Step::rows_spec(const char* name, int64_t tokens, int64_t heads, int64_t dims, bool written) const {
  return {name, tokens, heads, dims, context().dl_device(), written};
}

// Refuses a layer to which the step appends nothing.
Status Step::check_appends(int32_t layer) const {
  if (appends(layer)) return Status();
  const Layer& l = layers_[layer];
  if (l.kv_layer >= 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d stores no k and v: it reads layer %d's", layer,
                         l.kv_layer)
        .at(layer);
  }
  const char* why = "the forward appends encoder tokens of another group";
  if (l.states) {
    why = "it is recurrent";
  } else if (forward_->kind.encoder_group < 0) {
    why = "its encoder tokens come in forwards of their encoder_group";
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d takes no k and v: %s", layer, why).at(layer);
}

Status Step::check_kv(int32_t layer, const KvTensors& tensors, NewKv* out) const {
  KVC_TRY(check_appends(layer));
  if (forward_->calls.appended(static_cast<size_t>(layer))) {
    return Status::error(KVC_ERROR_ORDER, "layer %d was appended already in this forward", layer).at(layer);
  }
  out->as_stored = tensors.as_stored;
  const Layer& l = layers_[layer];
  return check_kv_rows(tensors, l.backend, forward_->appended_rows(l.group), context().dl_device(), &out->rows);
}

// Checks the caller's cos and sin. *out is null if the caller gives none.
Status Step::check_rotation(int32_t layer, const DLTensor* cos_sin, const float** out) const {
  *out = nullptr;
  if (cos_sin == nullptr) return Status();
  const kvc_backend_layer& shape = layers_[layer].backend;
  if (shape.rope_class < 0 || layers_.rotates_on_read(shape)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin is given, and layer %d does not rotate on append",
                         layer)
        .at(layer);
  }
  return check_cos_sin(*cos_sin, "rope_cos_sin", forward_->tensor_rows(), shape.rope_dim / 2, context().dl_device(),
                       out);
}

// Finds cos and sin for the tokens of a step: those of the caller, or those of the layer's RoPE class. *out is null
// if nothing is rotated.
Status Step::find_rotation(const kvc_backend_layer& layer, const float* given, const float** out) {
  *out = given;
  if (layer.rope_class < 0 || given != nullptr) return Status();
  return forward_->cos_sin(context(), layers_.rope_tables(), static_cast<size_t>(layer.rope_class), out);
}

Status Step::run_append(int32_t layer, const NewKv& kv) {
  const Layer& target = layers_[layer];
  kvc_backend_append args = {};
  args.layer = &target.backend;
  args.num_tokens = forward_->batch->num_appended(target.group);
  args.slots = forward_->batch->backend_slots(target.group);
  args.k = kv.rows.k;
  args.v = kv.rows.v;
  args.k_scale = kv.rows.k_scale;
  args.v_scale = kv.rows.v_scale;
  args.step = forward_->step();
  if (!kv.as_stored && !layers_.rotates_on_read(*args.layer))
    KVC_TRY(find_rotation(*args.layer, kv.cos_sin, &args.cos_sin));
  if (forward_->appended_rows(target.group) > 0) {
    kvc_error error = KVC_ERROR_INIT;
    KVC_TRY(Status::from(context().backend().append(context().device(), &args, forward_->stream, &error), error));
  }
  forward_->calls.note_append(static_cast<size_t>(layer));
  return Status();
}

Status Step::check_append(int32_t layer, const kvc_append_args& args, NewKv* out) const {
  KVC_TRY(layers_.check_has_storage(layer));
  if ((args.flags & ~uint32_t{KVC_APPEND_AS_STORED}) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "flags 0x%x has unknown bits", args.flags);
  }
  const bool as_stored = (args.flags & KVC_APPEND_AS_STORED) != 0;
  KVC_TRY(check_kv(layer, {args.k, args.v, args.k_scale, args.v_scale, as_stored}, out));
  KVC_TRY(check_rotation(layer, args.rope_cos_sin, &out->cos_sin));
  if (out->as_stored && args.rope_cos_sin != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rope_cos_sin contradicts KVC_APPEND_AS_STORED");
  }
  return Status();
}

Status Step::append(int32_t layer, const kvc_append_args& args) {
  KVC_TRY(check_forward_layer(layer));
  NewKv kv;
  if (Status checked = check_append(layer, args, &kv); !checked.ok()) return std::move(checked).in_layer(layer);
  return run(run_append(layer, kv));
}

Status Step::append_rows(int32_t layer, const KvRows& rows, bool as_stored) {
  return run(run_append(layer, {rows, as_stored, nullptr}));
}

}  // namespace kvc

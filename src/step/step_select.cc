// A step's select: finds the tokens that have the highest scores in a layer with keys only.
#include <cinttypes>

#include "kernels/common/stored_format.h"
#include "step/step.h"
#include "tensor/key_lists.h"
#include "tensor/tensor_overlap.h"

namespace kvc {
namespace {

// Checks that a number is in least..most, and copies it to *out.
Status read_count(const char* name, int32_t value, int32_t least, int64_t most, int32_t* out) {
  if (value < least || value > most) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %d is not in %d..%" PRId64, name, value, least, most);
  }
  *out = value;
  return Status();
}

}  // namespace

// Checks that the layer, the rule with its weights, the backend, and earlier calls of the step allow this select.
Status Step::check_selects(int32_t layer, const kvc_select_args& args) const {
  const Layer& l = layers_[layer];
  KVC_TRY(layers_.check_has_storage(layer));
  if (!kernels::keys_only(l.backend)) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "layer %d does not store keys only (KVC_LAYER_KEYS_ONLY)", layer)
        .at(layer);
  }
  if (args.rule != KVC_SELECT_RELU_SUM && args.rule != KVC_SELECT_EACH_HEAD) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "rule %d is not in 0..1", args.rule);
  }
  if (args.weights != nullptr && args.rule == KVC_SELECT_EACH_HEAD) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "weights are given, and KVC_SELECT_EACH_HEAD has none");
  }
  if (const kvc_backend& backend = context().backend(); (backend.features & KVC_BACKEND_SELECT) == 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "the %s backend does not select", backend.name);
  }
  const kvc_backend_rows& rows = forward_->batch->rows(l.group);
  for (int32_t row = 0; rows.stream_windows != nullptr && row < rows.num_rows; ++row) {
    if (rows.stream_windows[row] == 0) continue;
    return Status::error(
               KVC_ERROR_UNSUPPORTED,
               "row %d is longer than its streaming window of %d tokens, and select has no windows of streams", row,
               rows.stream_windows[row])
        .at(row);
  }
  if (has_appended(layer)) return Status();
  return Status::error(KVC_ERROR_ORDER, "layer %d was not appended in this forward", layer).at(layer);
}

Status Step::check_select(int32_t layer, const kvc_select_args& args, kvc_backend_select* out) const {
  KVC_TRY(check_selects(layer, args));
  const kvc_backend_layer& shape = layers_[layer].backend;
  const DLDevice device = context().dl_device();
  const int64_t tokens = forward_->tensor_rows(), heads = shape.num_q_heads;
  const int64_t lists = args.rule == KVC_SELECT_EACH_HEAD ? heads : 1;
  out->rule = args.rule;
  KVC_TRY(check_rows(args.q, rows_spec("q", tokens, heads, shape.head_dim, false), &out->q));
  if (args.weights != nullptr) {
    float* weights = nullptr;
    KVC_TRY(check_lse(args.weights, rows_spec("weights", tokens, heads, 1, false), &weights, &out->weights_token_stride,
                      &out->weights_head_stride));
    out->weights = weights;
  }
  KVC_TRY(check_rotation(layer, args.rope_cos_sin, &out->cos_sin));
  const int64_t any[3] = {tokens, -1, -1}, wanted[3] = {tokens, lists, -1};
  TensorView written, candidates;
  kvc_backend_lists entries;
  TensorSpec spec = {"indices", device, 3, wanted, "[tokens, lists, entries]"};
  spec.written = true;
  KVC_TRY(read_key_lists(args.indices, spec, lists, args.index_block == 0 ? 1 : args.index_block, &written, &entries));
  out->entries = const_cast<int32_t*>(entries.entries);
  out->token_stride = entries.token_stride;
  out->head_stride = entries.head_stride;
  out->num_entries = entries.num_entries;
  out->block_tokens = entries.block_tokens;
  KVC_TRY(read_count("first_blocks", args.first_blocks, 0, out->num_entries, &out->first_blocks));
  KVC_TRY(read_count("last_blocks", args.last_blocks, 0, out->num_entries - out->first_blocks, &out->last_blocks));
  if (args.candidates != nullptr) {
    KVC_TRY(read_key_lists(args.candidates, {"candidates", device, 3, any, "[tokens, 1 or lists, entries]"}, lists,
                           args.candidate_block == 0 ? 1 : args.candidate_block, &candidates, &out->candidates,
                           "candidate_block"));
    if (context().is_host())
      KVC_TRY(check_entries(out->candidates, forward_->batch->rows(layers_[layer].group), "candidates", lists));
  } else if (args.candidate_block != 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "candidate_block is %d, and candidates is NULL",
                         args.candidate_block);
  }
  const TensorView q = view_of(out->q, tokens, heads, shape.head_dim);
  const TensorView weights = view_of(
      {const_cast<float*>(out->weights), out->weights_token_stride, out->weights_head_stride, {kDLFloat, 32, 1}, 0},
      tokens, heads, 1);
  const NamedTensor writes = {"indices", &written};
  const NamedTensor reads[] = {{"q", &q}, {"weights", &weights}, {"candidates", &candidates}};
  for (const NamedTensor& read : reads) {
    if (read.tensor->data != nullptr) KVC_TRY(check_overlaps(&writes, 1, &read, 1));
  }
  return Status();
}

Status Step::run_select(int32_t layer, kvc_backend_select* select) {
  const Layer& source = layers_[layer];
  const DeviceMemory& scratch = *forward_->select_scratch();
  kvc_backend_plan plan = {};
  plan.arrays.rows = forward_->batch->rows(source.group);
  plan.arrays.tables = forward_->batch->tables(source.group);
  plan.device.rows = forward_->batch->device_rows(source.group);
  plan.device.tables = forward_->batch->device_tables(source.group);
  select->layer = &source.backend;
  select->plan = &plan;
  select->scratch = scratch.data();
  select->scratch_bytes = scratch.bytes();
  select->cancel_host = &forward_->cancelled;
  KVC_TRY(find_rotation(source.backend, select->cos_sin, &select->cos_sin));
  if (select->num_entries == 0 || forward_->tensor_rows() == 0) return Status();
  kvc_error error = KVC_ERROR_INIT;
  return Status::from(context().backend().select(context().device(), select, forward_->stream, &error), error);
}

Status Step::select(int32_t layer, const kvc_select_args& args) {
  KVC_TRY(check_forward_layer(layer));
  kvc_backend_select select = {};
  if (Status checked = check_select(layer, args, &select); !checked.ok()) return std::move(checked).in_layer(layer);
  return run(run_select(layer, &select));
}

}  // namespace kvc

#include "tensor/score_biases.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <utility>

#include "tensor/host_reads.h"

namespace kvc {
namespace {

bool is_mask_dtype(DLDataType dtype) {
  return same_dtype(dtype, {kDLBool, 8, 1}) || same_dtype(dtype, {kDLUInt, 8, 1});
}

// Sets *stride to the stride of heads, or to 0 if the tensor has one head for all kv heads.
Status read_heads(const char* name, const TensorView& view, int32_t dim, int64_t kv_heads, int64_t* stride) {
  *stride = view.shape[dim] == 1 ? 0 : view.strides[dim];
  if (view.shape[dim] == 1 || view.shape[dim] == kv_heads) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " heads, not 1 or %" PRId64, name, view.shape[dim], kv_heads);
}

// Checks that the tensor has an entry for each key of each row that has queries.
Status check_keys(const char* name, int64_t keys, const kvc_backend_rows& rows) {
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    if (rows.token_begin[row] == rows.token_begin[row + 1] || rows.kv_lengths[row] <= keys) continue;
    return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " keys, and row %d has %d tokens", name, keys, row,
                         rows.kv_lengths[row])
        .at(row);
  }
  return Status();
}

// Returns whether no number is NaN or +infinity. The loop has no branch, so that it becomes vector code.
bool all_below_infinity(const float* data, int64_t n) {
  int64_t others = 0;
  for (int64_t i = 0; i < n; ++i) others += data[i] < INFINITY ? 0 : 1;
  return others == 0;
}

// Refuses a float32 tensor [a, b, c] that has a NaN or +infinity.
Status check_values(const char* name, const float* data, const int64_t* shape, const int64_t* strides) {
  for (int64_t a = 0; a < shape[0]; ++a) {
    for (int64_t b = 0; b < shape[1]; ++b) {
      const float* const row = data + a * strides[0] + b * strides[1];
      if (strides[2] == 1 && all_below_infinity(row, shape[2])) continue;
      for (int64_t c = 0; c < shape[2]; ++c) {
        const float value = row[c * strides[2]];
        if (value < INFINITY) continue;  // false for NaN
        return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                             "%s[%" PRId64 ", %" PRId64 ", %" PRId64 "] is %g, not finite or -infinity", name, a, b, c,
                             static_cast<double>(value));
      }
    }
  }
  return Status();
}

Status read_rel_bias(const DLTensor& tensor, const BiasedCall& call, TensorView* view, kvc_backend_bias* out) {
  const int64_t shape[3] = {call.tokens, call.q_heads, -1};
  const int32_t skipped = tensor.ndim == 2 ? 1 : 0;
  TensorSpec spec = {"rel_bias", call.device, 3 - skipped, shape + skipped,
                     skipped == 1 ? "[heads, distances]" : "[tokens, heads, distances]"};
  spec.takes = is_float32_dtype;
  spec.dtypes = "float32";
  KVC_TRY(check_tensor(&tensor, spec, view));
  if (skipped == 1 && tensor.shape[0] != call.q_heads) {
    return Status::error(KVC_ERROR_SHAPE, "rel_bias has %" PRId64 " heads, not %" PRId64, tensor.shape[0],
                         call.q_heads);
  }
  const int64_t distances = view->shape[view->rank - 1];
  if (distances < 1 || distances > INT32_MAX) {
    return Status::error(KVC_ERROR_SHAPE, "rel_bias has %" PRId64 " distances, not 1..%d", distances, INT32_MAX);
  }
  out->relative = reinterpret_cast<const float*>(view->data);
  out->relative_token_stride = skipped == 1 ? 0 : view->strides[0];
  out->relative_head_stride = view->strides[view->rank - 2];
  out->num_distances = static_cast<int32_t>(distances);
  if (out->relative == nullptr || !host_reads(call.device)) return Status();
  const int64_t strides[3] = {out->relative_token_stride, out->relative_head_stride, 1};
  const int64_t values[3] = {skipped == 1 ? 1 : view->shape[0], call.q_heads, distances};
  return check_values("rel_bias", out->relative, values, strides);
}

Status read_key_bias(const DLTensor& tensor, const BiasedCall& call, TensorView* view, kvc_backend_bias* out) {
  const int64_t shape[3] = {call.rows.num_rows, -1, -1};
  TensorSpec spec = {"key_bias", call.device, 3, shape, "[rows, keys, 1 or kv heads]"};
  spec.dense = false;
  spec.takes = is_float32_dtype;
  spec.dtypes = "float32";
  KVC_TRY(check_tensor(&tensor, spec, view));
  KVC_TRY(read_heads("key_bias", *view, 2, call.kv_heads, &out->key_head_stride));
  KVC_TRY(check_keys("key_bias", view->shape[1], call.rows));
  out->keys = reinterpret_cast<const float*>(view->data);
  out->key_row_stride = view->strides[0];
  out->key_stride = view->strides[1];
  for (int32_t row = 0; row < call.rows.num_rows && out->keys != nullptr; ++row) {
    if (!host_reads(call.device)) break;
    if (call.rows.token_begin[row] == call.rows.token_begin[row + 1] || call.rows.kv_lengths[row] < 0) continue;
    const int64_t values[3] = {1, call.rows.kv_lengths[row], view->shape[2]};
    Status checked = check_values("key_bias of a row", out->keys + row * out->key_row_stride, values, view->strides);
    if (!checked.ok()) return std::move(checked).at(row);
  }
  return Status();
}

Status read_mask(const DLTensor& tensor, const BiasedCall& call, TensorView* view, kvc_backend_bias* out) {
  const bool heads = tensor.ndim != 2;
  const int64_t shape[3] = {call.tokens, -1, -1};
  TensorSpec spec = {"mask", call.device, heads ? 3 : 2, shape,
                     heads ? "[tokens, 1 or kv heads, keys]" : "[tokens, keys]"};
  spec.takes = is_mask_dtype;
  spec.dtypes = "bool or uint8";
  KVC_TRY(check_tensor(&tensor, spec, view));
  if (heads) KVC_TRY(read_heads("mask", *view, 1, call.kv_heads, &out->mask_head_stride));
  KVC_TRY(check_keys("mask", view->shape[view->rank - 1], call.rows));
  out->mask = reinterpret_cast<const uint8_t*>(view->data);
  out->mask_token_stride = view->strides[0];
  return Status();
}

}  // namespace

Status check_takes_biases(const kvc_backend& backend, const kvc_attend_args& args) {
  if ((backend.features & KVC_BACKEND_BIASES) != 0) return Status();
  const char* const given = args.rel_bias != nullptr ? "rel_bias" : args.key_bias != nullptr ? "key_bias" : "mask";
  return Status::error(KVC_ERROR_UNSUPPORTED, "%s: the %s backend has no biases and masks", given, backend.name);
}

Status read_biases(const kvc_attend_args& args, const BiasedCall& call, BiasViews* views, kvc_backend_bias* out) {
  if (args.rel_bias != nullptr) KVC_TRY(read_rel_bias(*args.rel_bias, call, &views->rel_bias, out));
  if (args.key_bias != nullptr) KVC_TRY(read_key_bias(*args.key_bias, call, &views->key_bias, out));
  if (args.mask != nullptr) KVC_TRY(read_mask(*args.mask, call, &views->mask, out));
  return Status();
}

}  // namespace kvc

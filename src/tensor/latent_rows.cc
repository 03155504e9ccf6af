#include "tensor/latent_rows.h"

#include <cinttypes>

#include "kernels/common/layer_check.h"
#include "kernels/common/stored_format.h"

namespace kvc {
namespace {

Status refuse(int64_t index, const kvc_layer_config& c, const char* name, int64_t value, const char* wanted) {
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "layer %" PRId64 ": %s %" PRId64 " of an MLA group with latent_dim %d is not %s", index, name,
                       value, c.latent_dim, wanted)
      .at(index);
}

}  // namespace

Status read_latent_layer(int64_t index, kvc_layer_config* config) {
  kvc_layer_config& c = *config;
  if (c.num_kv_heads != 1) return refuse(index, c, "num_kv_heads", c.num_kv_heads, "1");
  if (c.head_dim < 1 || c.head_dim > kernels::kMaxHeadDim) {
    static_assert(kernels::kMaxHeadDim == 1152);
    return refuse(index, c, "head_dim", c.head_dim, "in 1..1152");
  }
  if (c.latent_dim < 1 || c.latent_dim > c.head_dim) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": latent_dim %d of an MLA group is not in 1..head_dim %d", index,
                         c.latent_dim, c.head_dim)
        .at(index);
  }
  if (c.v_head_dim != 0 && c.v_head_dim != c.latent_dim) {
    return refuse(index, c, "v_head_dim", c.v_head_dim, "0 or latent_dim");
  }
  if (c.softmax_scale == 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64
                         ": softmax_scale 0 of an MLA group: the width %d of a row does not imply a scale",
                         index, c.head_dim)
        .at(index);
  }
  if (c.rope_mode != KVC_ROPE_NONE && c.rope_offset != 0 && c.rope_offset < c.latent_dim) {
    return refuse(index, c, "rope_offset", c.rope_offset, "0 or latent_dim or more");
  }
  if (c.v_scales != nullptr) return refuse(index, c, "v_scales of num_scales", c.num_scales, "NULL");
  c.v_head_dim = c.latent_dim;
  if (c.rope_offset == 0) c.rope_offset = c.latent_dim;
  c.v_scales = c.k_scales;
  return Status();
}

Status check_latent_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                         KvRows* out) {
  if (tensors.v_scale != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "v_scale is given, and the layer stores one row for K and V");
  }
  if (tensors.v == nullptr) {
    const kvc_backend_row_format* stored = tensors.as_stored ? &layer.format.k : nullptr;
    KVC_TRY(check_rows(tensors.k, {"k", tokens, 1, layer.head_dim, device, false, stored}, &out->k));
    return check_scale_rows(tensors.k_scale, "k_scale", out->k, layer, tokens, device, &out->k_scale);
  }
  const int32_t rotary = layer.head_dim - layer.v_head_dim;
  if (rotary == 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "v is given, and the latent part is the whole row of %d dims",
                         layer.head_dim);
  }
  if (tensors.k_scale != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "k_scale is given, and k and v are parts of a row: no stored bytes");
  }
  KVC_TRY(check_rows(tensors.k, {"k", tokens, 1, rotary, device}, &out->k));
  return check_rows(tensors.v, {"v", tokens, 1, layer.v_head_dim, device}, &out->v);
}

}  // namespace kvc

// Checks whether a layer can be stored and attended. All backends have the same rules.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/fail.h"
#include "kernels/common/hadamard.h"

namespace kvc::kernels {

constexpr int32_t kMaxHeadDim = 1152;  // an MLA row with 1,024 latent and 128 rotary dims

static_assert(kMaxHeadDim <= kMaxRotatedDims);

// Returns KVC_OK, or KVC_ERROR_UNSUPPORTED with the reason in `error`. backend: the backend's name, for the message.
[[maybe_unused]] static kvc_status check_layer_of(const char* backend, const kvc_backend_layer* layer,
                                                  kvc_error* error) {
  const DLDataType dtype = stored_dtype(*layer);
  if (type_of(dtype) == Type::kNone) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "K/V dtype {code %d, bits %d, lanes %d}; the %s backend stores %s",
                dtype.code, dtype.bits, dtype.lanes, backend, kStoredDtypes);
  }
  if (same_format(layer->format, ds_mla_format())) {
    if (layer->row_kind != KVC_BACKEND_ROW_LATENT || layer->head_dim != kDsMlaDims ||
        layer->v_head_dim != kDsMlaLatentDims) {
      return fail(error, KVC_ERROR_UNSUPPORTED,
                  "row_kind %u, %d dims of K and %d of V; rows of fp8_ds_mla have %d, %d, %d", layer->row_kind,
                  layer->head_dim, layer->v_head_dim, KVC_BACKEND_ROW_LATENT, kDsMlaDims, kDsMlaLatentDims);
    }
  } else if (!same_format(layer->format, stored_format(dtype))) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "the %s backend does not store K and V in this format of their dtype",
                backend);
  }
  if (layer->head_dim < 1 || layer->head_dim > kMaxHeadDim || layer->v_head_dim > kMaxHeadDim ||
      (layer->v_head_dim < 1 && !keys_only(*layer))) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "head dims %d (K) and %d (V); the %s backend has 1..%d", layer->head_dim,
                layer->v_head_dim, backend, kMaxHeadDim);
  }
  if (layer->num_kv_heads < 1 || layer->num_q_heads < 1 || layer->num_q_heads % layer->num_kv_heads != 0) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "%d q heads are not a multiple of %d kv heads", layer->num_q_heads,
                layer->num_kv_heads);
  }
  const bool packed = is_packed(type_of(dtype));
  const char* const name = type_of(dtype) == Type::kU4 ? "uint4" : "float4_e2m1fn";
  static_assert(kRotatedMultiple == kBlockDims);
  if (packed && (layer->head_dim % kRotatedMultiple != 0 || layer->v_head_dim % kRotatedMultiple != 0)) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "head dims %d (K) and %d (V) of %s are not multiples of %d",
                layer->head_dim, layer->v_head_dim, name, kRotatedMultiple);
  }
  if (packed && layer->row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "MLA rows of %s in two pools", name);
  }
  if (layer->page_size < 1) return fail(error, KVC_ERROR_UNSUPPORTED, "page size %d", layer->page_size);
  if (layer->rope_class >= 0 && (layer->rope_dim < 2 || layer->rope_dim % 2 != 0 || layer->rope_offset < 0 ||
                                 layer->rope_dim > layer->head_dim - layer->rope_offset)) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "%d rotated dims from dim %d on; an even number of the %d dims is needed",
                layer->rope_dim, layer->rope_offset, layer->head_dim);
  }
  if (layer->row_kind > KVC_BACKEND_ROW_LATENT_SPLIT) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "row_kind %u; the %s backend has 0..%d", layer->row_kind, backend,
                KVC_BACKEND_ROW_LATENT_SPLIT);
  }
  if (has_latent_rows(*layer) && (layer->num_kv_heads != 1 || layer->v_head_dim > layer->head_dim ||
                                  (layer->rope_class >= 0 && layer->rope_offset < layer->v_head_dim))) {
    return fail(error, KVC_ERROR_UNSUPPORTED,
                "MLA rows: %d dims of V in %d dims of K, %d kv heads, rotated from dim %d on; needed are one kv head, "
                "and no rotated dim of V",
                layer->v_head_dim, layer->head_dim, layer->num_kv_heads, layer->rope_offset);
  }
  if (layer->row_kind == KVC_BACKEND_ROW_LATENT_SPLIT && layer->v_head_dim >= layer->head_dim) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "MLA rows in two pools: %d dims of K and %d of V; V must have fewer",
                layer->head_dim, layer->v_head_dim);
  }
  return KVC_OK;
}

}  // namespace kvc::kernels

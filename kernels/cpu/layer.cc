// Which layers this backend can hold, and how it wants their work cut.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/device.h"

namespace kvc::kernels {

kvc_status check_layer(kvc_backend_device*, const kvc_backend_layer* layer, kvc_error* error) {
  if (type_of(layer->dtype) == Type::kNone) {
    return fail(
        error, KVC_ERROR_UNSUPPORTED,
        "K/V dtype {code %d, bits %d, lanes %d}; the CPU backend stores float32, float16, bfloat16, float8_e4m3fn, "
        "float8_e5m2 and int8",
        layer->dtype.code, layer->dtype.bits, layer->dtype.lanes);
  }
  if (layer->head_dim < 1 || layer->head_dim > kMaxHeadDim || layer->v_head_dim < 1 ||
      layer->v_head_dim > kMaxHeadDim) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "head dims %d (K) and %d (V); the CPU backend has 1..%d", layer->head_dim,
                layer->v_head_dim, kMaxHeadDim);
  }
  if (layer->num_kv_heads < 1 || layer->num_q_heads < 1 || layer->num_q_heads % layer->num_kv_heads != 0) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "%d q heads are not a multiple of %d kv heads", layer->num_q_heads,
                layer->num_kv_heads);
  }
  if (layer->page_size < 1) return fail(error, KVC_ERROR_UNSUPPORTED, "page size %d", layer->page_size);
  if (layer->rope_class >= 0 && (layer->rope_dim < 2 || layer->rope_dim % 2 != 0 || layer->rope_offset < 0 ||
                                 layer->rope_dim > layer->head_dim - layer->rope_offset)) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "%d rotated dims from %d on of a head dim of %d; even, within the head",
                layer->rope_dim, layer->rope_offset, layer->head_dim);
  }
  if (layer->v_in_k != 0 && (layer->num_kv_heads != 1 || layer->v_head_dim > layer->head_dim ||
                             (layer->rope_class >= 0 && layer->rope_offset < layer->v_head_dim))) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "V in the first %d of %d dims of K, of %d kv heads, rotated from %d on",
                layer->v_head_dim, layer->head_dim, layer->num_kv_heads, layer->rope_offset);
  }
  if (layer->k_behind_v != 0 && layer->v_head_dim >= layer->head_dim) {
    return fail(error, KVC_ERROR_UNSUPPORTED, "K's row of %d dims begins with V's %d", layer->head_dim,
                layer->v_head_dim);
  }
  return KVC_OK;
}

void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out) {
  // Bytes of K and V below which a split's own state and its merge are no longer small beside the reading.
  constexpr int64_t kSplitBytes = 128 * 1024;
  constexpr int32_t kSplitAlign = 64, kDecodeQueries = 8;
  const int32_t group = layer->num_q_heads / layer->num_kv_heads;
  const int64_t dims = layer->head_dim + (layer->v_in_k != 0 ? 0 : layer->v_head_dim);
  const int64_t token_bytes = layer->num_kv_heads * dims * type_bytes(type_of(layer->dtype));
  const int64_t split_keys = (kSplitBytes / token_bytes + kSplitAlign - 1) / kSplitAlign * kSplitAlign;
  const int32_t queries = device->implementation->preferred_rows(layer) / group;
  out->query_tile = queries > 0 ? queries : 1;
  // Rows of one pass where a kv head has many q heads (MLA): more would read K and V again.
  out->decode_max_queries = queries < kDecodeQueries ? out->query_tile : kDecodeQueries;
  out->heads_per_item = 1;
  out->split_align = kSplitAlign;
  out->min_split_keys = split_keys > kSplitAlign ? static_cast<int32_t>(split_keys) : kSplitAlign;
}

}  // namespace kvc::kernels

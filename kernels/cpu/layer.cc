// Says which layers the CPU backend supports, and how the work of a layer is divided into items.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/layer_check.h"
#include "kernels/cpu/device.h"

namespace kvc::kernels {

kvc_status check_layer(kvc_backend_device*, const kvc_backend_layer* layer, kvc_error* error) {
  return check_layer_of("CPU", layer, error);
}

void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out) {
  // A split has at least this many bytes of K and V. With fewer bytes, the partial state and the merge would cost too
  // much in comparison with the read.
  constexpr int64_t kSplitBytes = 128 * 1024;
  constexpr int32_t kSplitAlign = 64, kDecodeQueries = 8;
  const int32_t group = layer->num_q_heads / layer->num_kv_heads;
  const int64_t k_bytes = row_bytes(layer->format.k, layer->head_dim);
  const int64_t v_bytes = layer->row_kind == KVC_BACKEND_ROW_LATENT ? 0 : row_bytes(layer->format.v, layer->v_head_dim);
  const int64_t token_bytes = layer->num_kv_heads * (k_bytes + v_bytes);
  const int64_t split_keys = (kSplitBytes / token_bytes + kSplitAlign - 1) / kSplitAlign * kSplitAlign;
  const int32_t queries = preferred_rows(*device->implementation, layer) / group;
  out->query_tile = queries > 0 ? queries : 1;
  // If an item had more queries than fit in one pass, K and V would be read several times. If a kv head has many q
  // heads (MLA), only few queries fit.
  out->decode_max_queries = queries < kDecodeQueries ? out->query_tile : kDecodeQueries;
  out->heads_per_item = 1;
  out->split_align = kSplitAlign;
  out->parallel_items = 0;
  out->min_split_keys = split_keys > kSplitAlign ? static_cast<int32_t>(split_keys) : kSplitAlign;
}

}  // namespace kvc::kernels

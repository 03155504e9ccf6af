// Which layers this backend can hold, and how their work should be cut.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/layer_check.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

kvc_status check_layer(kvc_backend_device*, const kvc_backend_layer* layer, kvc_error* error) {
  if (has_rotated_rows(layer->format)) {
    return fail(error, KVC_ERROR_UNSUPPORTED,
                "K/V dtype uint4: the CUDA backend stores float32, float16, bfloat16, "
                "float8_e4m3fn, float8_e5m2 and int8");
  }
  return check_layer_of("CUDA", layer, error);
}

// Items are cut along the keys only: an item of all kv heads becomes one or more blocks for each head.
void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out) {
  constexpr int32_t kDecodeQueries = 8, kSplitAlign = 64, kMinSplitKeys = 256, kBlocksOfProcessor = 4;
  const int32_t group = layer->num_q_heads / layer->num_kv_heads, of_item = most_item_rows(device_of(device)->many);
  const int32_t queries = of_item / group;
  out->query_tile = queries > 0 ? queries : 1;
  out->decode_max_queries = queries < kDecodeQueries ? out->query_tile : kDecodeQueries;
  out->heads_per_item = layer->num_kv_heads;
  out->split_align = kSplitAlign;
  out->min_split_keys = kMinSplitKeys;
  const int32_t blocks_of_item = layer->num_kv_heads * ((group + kMostRows - 1) / kMostRows);
  int32_t items = kBlocksOfProcessor * device_of(device)->multiprocessors / blocks_of_item;
  if (is_latent(*layer)) {
    // A block of latent rows begins and ends slowly, because its q and its states are wide. So all blocks should run at
    // once: one on a multiprocessor, or two of few rows without warpgroups. The plan makes kItemsOfPart items for each
    // that runs at once, and rounds numbers up.
    constexpr int32_t kItemsOfPart = 4, kRounding = 16;
    const int32_t blocks = device_of(device)->encode_map == nullptr && group <= kFewRows.rows ? 2 : 1;
    items = blocks * device_of(device)->multiprocessors * (kRounding - 1) / kRounding / blocks_of_item / kItemsOfPart;
  }
  out->parallel_items = items > 0 ? items : 1;
}

}  // namespace kvc::kernels::cuda

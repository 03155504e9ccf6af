// Which layers this backend can hold, and how their work should be cut.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/layer_check.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

kvc_status check_layer(kvc_backend_device*, const kvc_backend_layer* layer, kvc_error* error) {
  if (const Type type = stored_type(*layer); is_packed(type)) {
    return fail(error, KVC_ERROR_UNSUPPORTED,
                "K/V dtype %s: the CUDA backend stores float32, float16, bfloat16, "
                "float8_e4m3fn, float8_e5m2 and int8",
                type == Type::kU4 ? "uint4" : "float4_e2m1fn");
  }
  return check_layer_of("CUDA", layer, error);
}

// Items are cut along the keys only: an item of all kv heads becomes one or more blocks for each head.
void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out) {
  constexpr int32_t kDecodeQueries = 8, kSplitAlign = 64, kMinLatentSplitKeys = 256;
  // Bytes of a part of a kv head's keys. Smaller parts cost more to begin and to merge than they save.
  constexpr int64_t kMinSplitBytes = 256 << 10;
  const int32_t group = layer->num_q_heads / layer->num_kv_heads, of_item = most_item_rows(device_of(device)->many);
  const int32_t queries = of_item / group;
  out->query_tile = queries > 0 ? queries : 1;
  out->decode_max_queries = queries < kDecodeQueries ? out->query_tile : kDecodeQueries;
  out->heads_per_item = layer->num_kv_heads;
  out->split_align = kSplitAlign;
  out->min_split_keys = kMinLatentSplitKeys;
  if (!is_latent(*layer)) {
    const int64_t bits = int64_t{layer->head_dim + layer->v_head_dim} * element_bits(stored_type(*layer));
    const int64_t blocks = kMinSplitBytes * 8 / bits / kSplitAlign;
    out->min_split_keys = static_cast<int32_t>(blocks > 1 ? blocks : 1) * kSplitAlign;
  }
  // Blocks of few rows: one wave of two blocks on a multiprocessor, or two waves of three where K and V have 8 bits.
  int32_t blocks = (is_quantised(stored_type(*layer)) ? 6 : 2) * device_of(device)->multiprocessors;
  if (is_latent(*layer)) {
    // A block of latent rows begins and ends slowly, because its q and its states are wide. So there is one wave: one
    // block on a multiprocessor, or two of few rows without warpgroups. A sixteenth is left, because the plan rounds
    // the number of parts up.
    const bool two = device_of(device)->encode_map == nullptr && group <= kFewRows.rows;
    blocks = (two ? 2 : 1) * device_of(device)->multiprocessors * 15 / 16;
  }
  const int32_t blocks_of_item = layer->num_kv_heads * ((group + kMostRows - 1) / kMostRows);
  // The plan makes up to kItemsOfPlan items for each that runs at once (src/plan/work_plan.cc).
  constexpr int32_t kItemsOfPlan = 4;
  const int32_t items = blocks / blocks_of_item / kItemsOfPlan;
  out->parallel_items = items > 0 ? items : 1;
}

}  // namespace kvc::kernels::cuda

// Says which layers the CUDA backend supports, and how their work is divided into items.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/layer_check.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/decode/plan.h"
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

kvc_status check_layer(kvc_backend_device*, const kvc_backend_layer* layer, kvc_error* error) {
  return check_layer_of("CUDA", layer, error);
}

// An item covers all kv heads, and becomes one or more thread blocks for each head. So items divide the queries and the
// keys, but not the heads.
void tiling(kvc_backend_device* device, const kvc_backend_layer* layer, kvc_backend_tiling* out) {
  constexpr int32_t kDecodeQueries = 8, kSplitAlign = 64, kMinLatentSplitKeys = 256;
  // The smallest number of bytes of K and V that an item of a split reads for one kv head. The begin and the merge of a
  // smaller item cost more time than the item saves.
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
  // each: the number of blocks of few rows (attend/common/plan.h) for each multiprocessor. It is 2, or 3 if elements
  // are float8_e4m3fn or int8 and K has at most 64 dims, or 4-bit floats and K has at most 128 dims. Then all blocks
  // run in one wave (attend/decode/plan.h). With the other quantised types it is 6: three blocks run at a time, in two
  // waves.
  const Type stored = stored_type(*layer);
  const bool in_one_wave =
      stored == Type::kE4m3 || stored == Type::kI8 || (stored == Type::kE2m1 && layer->head_dim <= 128);
  const int32_t each = in_one_wave            ? (layer->head_dim <= 64 || stored == Type::kE2m1 ? 3 : 2)
                       : is_quantised(stored) ? 6
                                              : 2;
  int32_t blocks = each * device_of(device)->multiprocessors;
  if (is_latent(*layer)) {
    // A block of latent rows takes long to begin and to end, because its q and its states are wide. So all blocks
    // should run in one wave. One block fits on a multiprocessor, or two if the rows are few and no warpgroup kernel is
    // used. The number is reduced by a sixteenth, because the plan rounds the number of key ranges up.
    const bool two = device_of(device)->encode_map == nullptr && group <= kFewRows.rows;
    blocks = (two ? 2 : 1) * device_of(device)->multiprocessors * 15 / 16;
  }
  const int32_t blocks_of_item = layer->num_kv_heads * ((group + kMostRows - 1) / kMostRows);
  // The plan divides the work into about kItemsOfPlan * parallel_items items (src/plan/work_plan.cc).
  constexpr int32_t kItemsOfPlan = 4;
  const int32_t items = blocks / blocks_of_item / kItemsOfPlan;
  out->parallel_items = items > 0 ? items : 1;
  out->resident_items = 0;
  if (!device_of(device)->simple && why_not_decode(*layer) == nullptr) {
    const Device& of = *device_of(device);
    const DecodeShape shape =
        decode_shape(*layer, Type::kBf16, kMostDecodeFixedBytes, of.shared_of_block, of.shared_of_multiprocessor);
    out->resident_items = shape.blocks * of.multiprocessors / blocks_of_item;
  }
}

}  // namespace kvc::kernels::cuda

// The host's part of attention over latent rows (MLA) by Hopper's warpgroup products: which calls they can compute, and
// how the shared memory of a block is divided. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/wgmma/plan.h"

namespace kvc::kernels::cuda {

constexpr int32_t kLatentValueDims = 512, kLatentKeyDims = 576;  // dims of V, and of K's row, which begins with V
constexpr int32_t kLatentTileKeys = 64, kLatentStages = 2;
constexpr int32_t kDsMlaScales = 4;  // of a row of fp8_ds_mla
static_assert(kWideRows.rows % kWarpgroupRows == 0 && kFewRows.rows <= kWarpgroupRows);

// Whether TMA copies the tiles of a call. listed: the call has lists.
inline bool has_latent_boxes(const kvc_backend_layer& layer, bool listed) {
  return !listed && !is_ds_mla(layer.format);
}

// Returns why attend/mma/latent.cuh must compute blocks of `cut` over latent rows, or null if warpgroups can.
// Warpgroups need the following:
//   - A product has 64 rows. Blocks of few rows are accepted if the heads of one query fill such a block. Such calls
//     take as long as reading K takes, so unused rows of the product cost nothing.
//   - The cache is not deterministic, because o of earlier keys (128 KiB in float32) does not fit beside q and the
//     tiles.
//   - Keys are not rotated on read, because the tiles of their two or three parts do not fit either.
//   - K has the type of q, or rows are those of fp8_ds_mla.
//   - The number of slots of a page is a multiple of 8, because TMA copies boxes of slots of one page. Keys of a list
//     and rows of fp8_ds_mla are copied without TMA, so only what why_simple names is needed.
//   - A call with lists has no ALiBi, because a tile of a list does not have the positions of its keys.
inline const char* why_not_wgmma_latent(const kvc_backend_attend& args, const BlockCut& cut) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype);
  if (has_bias_or_mask(args.bias)) return "scores have a bias or a mask";
  if (!is_latent(layer)) return "V is not in K's row";
  if (layer.head_dim != kLatentKeyDims || layer.v_head_dim != kLatentValueDims) return "rows are not 512 + 64 dims";
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored_type(layer) != q && !is_ds_mla(layer.format)) return "K has another type than q";
  if (args.key_tables != nullptr) return "keys are rotated on read";
  if (args.plan->fold_keys > 0) return "the cache is deterministic";
  if (cut.rows == kFewRows.rows && layer.num_q_heads / layer.num_kv_heads < kFewRows.rows) return "rows are few";
  const bool listed = args.lists.block_tokens != 0;
  if (listed && args.alibi_slopes != nullptr) return "keys of a list have positions";
  return has_latent_boxes(layer, listed) ? why_not_boxes(layer) : why_simple(args);
}

// The shared memory of a block: the fixed part, q [9 panels][64 rows][64], and a tile [9 panels][64 keys][64] for each
// stage. The first 8 panels of a tile are V. P replaces the ninth panel (attend/wgmma/latent.cuh).
inline WgmmaShape wgmma_latent_shape(const kvc_backend_layer& layer, int32_t fixed_bytes) {
  WgmmaShape shape;
  shape.box_keys = box_keys(layer.page_size, kLatentTileKeys);
  shape.q_at = (fixed_bytes + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  shape.k_at = shape.v_at = shape.q_at + kWarpgroupRows * kLatentKeyDims * 2;
  shape.shared_bytes = shape.raw_at = shape.k_at + kLatentStages * kLatentTileKeys * kLatentKeyDims * 2;
  return shape;
}

// Where the last 64 dims of latent rows are: in the pool of the whole rows, or in a pool that has only the dims after
// V.
struct RotaryDims {
  int32_t dims, first;  // dims: the number of dims of a row of that pool; first: the first dim that is copied
};
KVC_HOST_DEVICE RotaryDims rotary_dims(const kvc_backend_layer& layer) {
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) return {kLatentKeyDims - kLatentValueDims, 0};
  return {kLatentKeyDims, kLatentValueDims};
}

}  // namespace kvc::kernels::cuda

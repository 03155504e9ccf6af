// Attention over latent rows (MLA) by Hopper's warpgroup products, the host's part: which calls it can compute, and how
// a block's shared memory is cut. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/wgmma/plan.h"

namespace kvc::kernels::cuda {

constexpr int32_t kLatentValueDims = 512, kLatentKeyDims = 576;  // of V, and of K's row, which begins with V's
constexpr int32_t kLatentTileKeys = 64, kLatentStages = 2;
static_assert(kWideRows.rows % kWarpgroupRows == 0 && kFewRows.rows <= kWarpgroupRows);

// Why attention over latent rows, in blocks of such a cut, is left to attend/mma/latent.cuh: words, or null.
//   - a product has 64 rows: blocks of few are worth it where one query fills them, as such calls are bound by the
//     bytes of K, whatever is multiplied;
//   - deterministic caches: o of earlier keys (128 KiB in float32) has no room beside q and tiles;
//   - keys that are rotated on read are sums of two or three numbers, whose tiles have no room either;
//   - TMA's boxes are slots of a page, in eights.
inline const char* why_not_wgmma_latent(const kvc_backend_attend& args, const BlockCut& cut) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype);
  if (!is_latent(layer)) return "V is not in K's row";
  if (layer.head_dim != kLatentKeyDims || layer.v_head_dim != kLatentValueDims) return "rows are not 512 + 64 dims";
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored_type(layer) != q) return "K has another type than q";
  if (args.key_tables != nullptr) return "keys turn where they are read";
  if (args.plan->fold_keys > 0) return "the cache is deterministic";
  if (cut.rows == kFewRows.rows && layer.num_q_heads / layer.num_kv_heads < kFewRows.rows) return "rows are few";
  return why_not_boxes(layer);
}

// Bytes from the begin of a block's shared memory: what is fixed; q [9 panels][64 rows][64]; then tiles [9][64
// keys][64], one for each stage. V is the first 8 panels of a tile; P is where the ninth was (attend/wgmma/latent.cuh).
inline WgmmaShape wgmma_latent_shape(const kvc_backend_layer& layer, int32_t fixed_bytes) {
  WgmmaShape shape;
  shape.box_keys = box_keys(layer.page_size, kLatentTileKeys);
  shape.q_at = (fixed_bytes + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  shape.k_at = shape.v_at = shape.q_at + kWarpgroupRows * kLatentKeyDims * 2;
  shape.shared_bytes = shape.raw_at = shape.k_at + kLatentStages * kLatentTileKeys * kLatentKeyDims * 2;
  return shape;
}

// What the last 64 dims of a latent row are copied as: of K's whole row, or of the rest of it in a pool of its own.
struct RotaryDims {
  int32_t dims, first;  // of the pool's row; of them the first one
};
KVC_HOST_DEVICE RotaryDims rotary_dims(const kvc_backend_layer& layer) {
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) return {kLatentKeyDims - kLatentValueDims, 0};
  return {kLatentKeyDims, kLatentValueDims};
}

}  // namespace kvc::kernels::cuda

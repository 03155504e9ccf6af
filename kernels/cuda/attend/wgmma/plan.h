// Attention by Hopper's warpgroup products, the host's part: which calls it can compute, how a block's shared memory is
// cut, and what the tensor maps of the pools are. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/stored_format.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/wgmma/layout.h"

namespace kvc::kernels::cuda {

constexpr int32_t kWarpgroups = 2;  // that compute, 64 rows each; one more brings tiles
constexpr int32_t kWgmmaThreads = (1 + kWarpgroups) * kWarpgroupThreads;
static_assert(kWideRows.rows == kWarpgroups * kWarpgroupRows);

// Dims of K and V that there are instances for: like ones, and those of MLA's decompressed prefill.
constexpr bool has_wgmma_dims(int32_t dims, int32_t v_dims) {
  if (dims == 192) return v_dims == 128;
  return (dims == 64 || dims == 128 || dims == 256) && v_dims == dims;
}

// Keys of a tile, and tiles of K, and of V, that are in shared memory or on their way: what a thread's registers hold
// of S [64][keys] and o [64][v_dims], and what shared memory does.
constexpr int32_t wgmma_tile_keys(int32_t v_dims) { return v_dims > 128 ? 64 : 128; }
constexpr int32_t wgmma_stages(int32_t dims) { return dims > 64 ? 2 : 4; }
// Of K and V of 8 bits, tiles as stored: those are loaded, and dequantised to the tiles that products read.
constexpr int32_t kRawStages = 3;

// Why TMA cannot load boxes of a layer's pools: words, or null.
inline const char* why_not_boxes(const kvc_backend_layer& layer) {
  if (layer.page_size % kPatternRows != 0) return "the page size is no multiple of 8";
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    const int64_t strides[] = {pool->page_stride_bytes, pool->head_stride_bytes, pool->slot_stride_bytes};
    for (const int64_t stride : strides) {
      if (stride % 16 != 0) return "rows are not aligned to 16 bytes";
      if (stride < 0 || stride >= int64_t{1} << 40) return "a stride is not in the copy engine's range";
    }
    if (reinterpret_cast<uintptr_t>(pool->data) % 16 != 0) return "rows are not aligned to 16 bytes";
  }
  return nullptr;
}

// Why attention of many rows is left to the other kernels: words, or null.
//   - q, K and V have one 16-bit type, or K and V are floats of 8 bits, which either type of q holds exactly; keys are
//     stored as they attend;
//   - beside tiles of 256 dims there is no room for tiles of 8 bits as stored;
//   - TMA writes rows of 64 dims, 8 of them to a pattern: boxes are slots of a page, in eights.
inline const char* why_not_wgmma(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = stored_type(layer);
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored == Type::kI8) return "tokens have scales";
  if (stored != q && !is_quantised(stored)) return "K has another type than q";
  if (!has_wgmma_dims(layer.head_dim, layer.v_head_dim)) {
    return "the head dims of K and V are none of 64, 128, 256, and 192 with 128";
  }
  if (is_quantised(stored) && layer.head_dim > 128) return "K and V have 8 bits and more than 128 dims";
  if (args.key_tables != nullptr) return "keys turn where they are read";
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) return "K is in two pools";
  if (args.plan->fold_keys > 0) return "the cache is deterministic";
  return why_not_boxes(layer);
}

// Slots of a box: tiles and pages are both made of such.
constexpr int32_t box_keys(int32_t page_size, int32_t tile_keys) {
  int32_t a = page_size, b = tile_keys;
  while (b != 0) {
    const int32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// Bytes from the begin of a block's shared memory: what is fixed; q [dims / 64][128 rows][64]; then tiles of K [dims /
// 64][keys][64], and of V likewise, one of each for every stage. Where K and V have 8 bits, after them tiles as stored
// [keys][dims], of K and of V in turn.
struct WgmmaShape {
  int32_t box_keys;
  int32_t q_at, k_at, v_at, raw_at;
  int32_t shared_bytes;
};
inline WgmmaShape wgmma_shape(const kvc_backend_layer& layer, int32_t fixed_bytes) {
  const int32_t dims = layer.head_dim, v_dims = layer.v_head_dim;
  const int32_t keys = wgmma_tile_keys(v_dims), rows = wgmma_stages(dims) * keys;  // of all tiles
  WgmmaShape shape;
  shape.box_keys = box_keys(layer.page_size, keys);
  shape.q_at = (fixed_bytes + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  shape.k_at = shape.q_at + kWideRows.rows * dims * 2;
  shape.v_at = shape.k_at + rows * dims * 2;
  shape.raw_at = shape.v_at + rows * v_dims * 2;
  shape.shared_bytes = shape.raw_at + (is_quantised(stored_type(layer)) ? kRawStages * keys * dims : 0);
  return shape;
}

// A pool as TMA sees it: dims, then slots and heads, the nearer one first, then pages; strides in bytes, of
// all but the first. A box is of 64 dims, or of 8 bits of all. A dimension of one element has the stride of the next,
// whatever the pool says.
struct PoolBoxes {
  uint64_t sizes[4], strides[3];
  uint32_t box[4];
  int32_t heads_first;  // dimension 1 is heads, 2 slots
};
inline PoolBoxes pool_boxes(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims,
                            int32_t box_keys) {
  const uint64_t slots = static_cast<uint64_t>(layer.page_size), heads = static_cast<uint64_t>(layer.num_kv_heads);
  const uint64_t slot = static_cast<uint64_t>(pool.slot_stride_bytes);
  const uint64_t head = static_cast<uint64_t>(pool.head_stride_bytes);
  const uint64_t page = static_cast<uint64_t>(pool.page_stride_bytes), box = static_cast<uint64_t>(box_keys);
  const bool heads_first = heads > 1 && head < slot;
  PoolBoxes boxes = {};
  boxes.heads_first = heads_first ? 1 : 0;
  const uint64_t inner[2] = {heads_first ? heads : slots, heads_first ? slots : heads};
  boxes.sizes[0] = static_cast<uint64_t>(dims);
  boxes.sizes[1] = inner[0];
  boxes.sizes[2] = inner[1];
  boxes.sizes[3] =
      static_cast<uint64_t>(layer.num_pages > 0 ? layer.num_pages : INT32_MAX);  // none of a caller's array
  boxes.strides[0] = heads_first ? head : slot;
  boxes.strides[1] = heads_first ? slot : heads > 1 ? head : slot * slots;
  boxes.strides[2] = page > 0 ? page : slot * slots;
  boxes.box[0] = static_cast<uint32_t>(is_quantised(stored_type(layer)) ? dims : kPanelDims);
  boxes.box[1] = static_cast<uint32_t>(heads_first ? 1 : box);
  boxes.box[2] = static_cast<uint32_t>(heads_first ? box : 1);
  boxes.box[3] = 1;
  return boxes;
}

}  // namespace kvc::kernels::cuda

// The host's part of attention by Hopper's warpgroup products: which calls they can compute, how the shared memory of a
// block is divided, and the tensor maps of the pools. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "kernels/common/bias.h"
#include "kernels/common/stored_format.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/wgmma/layout.h"

namespace kvc::kernels::cuda {

constexpr int32_t kWarpgroups = 2;  // consumer warpgroups; each has 64 rows
// The threads of a block. One more warpgroup is the producer. With 8-bit K and V, a further warpgroup helps to
// dequantise.
constexpr int32_t wgmma_threads(bool raw) { return (1 + kWarpgroups + (raw ? 1 : 0)) * kWarpgroupThreads; }
static_assert(kWideRows.rows == kWarpgroups * kWarpgroupRows);

// Whether the kernel has an instance for these dims of K and V: equal dims, or the dims of MLA's decompressed prefill.
constexpr bool has_wgmma_dims(int32_t dims, int32_t v_dims) {
  if (dims == 192) return v_dims == 128;
  return (dims == 64 || dims == 128 || dims == 256) && v_dims == dims;
}

// wgmma_tile_keys: the keys of a tile. The registers of a thread limit their number, because they hold a part of S
// [64][keys] and of o [64][v_dims]. wgmma_stages: the number of tiles of K (and of V) in shared memory.
constexpr int32_t wgmma_tile_keys(int32_t v_dims) { return v_dims > 128 ? 64 : 128; }
constexpr int32_t wgmma_stages(int32_t dims) { return dims > 64 ? 2 : 4; }
// V of a tile is read after the softmax, so it stays in its slot longer than K. A third tile of V is used where it
// fits, so that products do not wait for V.
constexpr int32_t wgmma_value_stages(int32_t dims, bool raw) { return dims == 128 && !raw ? 3 : wgmma_stages(dims); }
// The number of tiles of 8-bit K and V as stored. Their elements are dequantised to the tiles that products read.
constexpr int32_t kRawStages = 3;

// Returns why TMA cannot load boxes of a layer's pools, or null.
inline const char* why_not_boxes(const kvc_backend_layer& layer) {
  if (layer.page_size % kPatternRows != 0) return "the page size is no multiple of 8";
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    const int64_t strides[] = {pool->page_stride_bytes, pool->head_stride_bytes, pool->slot_stride_bytes};
    for (const int64_t stride : strides) {
      if (stride % 16 != 0) return "rows are not aligned to 16 bytes";
      if (stride < 0 || stride >= int64_t{1} << 40) return "TMA takes no such stride";
    }
    const bool same_heads = layer.num_kv_heads > 1 && pool->head_stride_bytes == 0;
    if (pool->slot_stride_bytes == 0 || same_heads) return "TMA takes no such stride";
    if (reinterpret_cast<uintptr_t>(pool->data) % 16 != 0) return "rows are not aligned to 16 bytes";
  }
  return nullptr;
}

// Returns why other kernels must compute attention of many rows, or null if warpgroups can. Warpgroups need the
// following:
//   - q, K and V have the same 16-bit type, or K and V are 8-bit floats, which both types of q represent exactly.
//   - Keys are not rotated on read, and the cache is not deterministic.
//   - With 8 bits, rows have fewer than 256 dims, because tiles of 256 dims leave no room for tiles as stored.
//   - The number of slots of a page is a multiple of 8. TMA copies boxes of slots of one page, and 8 rows make a
//     swizzle pattern.
inline const char* why_not_wgmma(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = stored_type(layer);
  if (has_bias_or_mask(args.bias)) return "scores have a bias or a mask";
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (is_packed(stored)) return "rows have 4 bits";
  if (stored == Type::kI8) return "tokens have scales";
  if (stored != q && !is_quantised(stored)) return "K has another type than q";
  if (!has_wgmma_dims(layer.head_dim, layer.v_head_dim)) {
    return "the head dims of K and V are none of 64, 128, 256, and 192 with 128";
  }
  if (is_quantised(stored) && layer.head_dim > 128) return "K and V have 8 bits and more than 128 dims";
  if (args.key_tables != nullptr) return "keys are rotated on read";
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) return "K is in two pools";
  if (args.plan->fold_keys > 0) return "the cache is deterministic";
  return why_not_boxes(layer);
}

// The slots of a box: the largest number that divides both the slots of a page and the keys of a tile.
constexpr int32_t box_keys(int32_t page_size, int32_t tile_keys) {
  int32_t a = page_size, b = tile_keys;
  while (b != 0) {
    const int32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

// The shared memory of a block. Offsets are in bytes. It has the fixed part, q [dims / 64][128 rows][64], a tile [dims
// / 64][keys][64] for each stage of K, and a tile for each stage of V. With 8-bit K and V, kRawStages tiles as stored
// [keys][dims] follow, alternately of K and of V.
struct WgmmaShape {
  int32_t box_keys;
  int32_t q_at, k_at, v_at, raw_at;
  int32_t shared_bytes;
};
inline WgmmaShape wgmma_shape(const kvc_backend_layer& layer, int32_t fixed_bytes) {
  const int32_t dims = layer.head_dim, v_dims = layer.v_head_dim;
  const int32_t keys = wgmma_tile_keys(v_dims);
  const bool raw = is_quantised(stored_type(layer));
  WgmmaShape shape;
  shape.box_keys = box_keys(layer.page_size, keys);
  shape.q_at = (fixed_bytes + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
  shape.k_at = shape.q_at + kWideRows.rows * dims * 2;
  shape.v_at = shape.k_at + wgmma_stages(dims) * keys * dims * 2;
  shape.raw_at = shape.v_at + wgmma_value_stages(dims, raw) * keys * v_dims * 2;
  shape.shared_bytes = shape.raw_at + (raw ? kRawStages * keys * dims : 0);
  return shape;
}

// The stride that a dimension with only one element gets in place of the pool's stride. TMA accepts this stride, and it
// is not less than the number of elements of any dimension (PoolBoxes.sizes).
constexpr uint64_t kStrideOfOne = uint64_t{1} << 39;
// The description of a pool for TMA. Dimension 0 is dims. Dimensions 1 and 2 are slots and heads; the dimension with
// the smaller stride comes first. Dimension 3 is pages. strides: bytes, of the dimensions 1 to 3. box: the size of a
// box, which has 64 dims, or all dims of 8-bit rows.
struct PoolBoxes {
  uint64_t sizes[4], strides[3];
  uint32_t box[4];
  int32_t heads_first;  // 1: dimension 1 is heads and dimension 2 is slots
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
  boxes.sizes[3] = static_cast<uint64_t>(
      layer.num_pages > 0 ? layer.num_pages : INT32_MAX);  // a caller's array has no known number of pages
  boxes.strides[0] = heads_first ? head : slot;
  boxes.strides[1] = heads_first ? slot : heads > 1 ? head : kStrideOfOne;
  boxes.strides[2] = page > 0 ? page : kStrideOfOne;
  boxes.box[0] = static_cast<uint32_t>(is_quantised(stored_type(layer)) ? dims : kPanelDims);
  boxes.box[1] = static_cast<uint32_t>(heads_first ? 1 : box);
  boxes.box[2] = static_cast<uint32_t>(heads_first ? box : 1);
  boxes.box[3] = 1;
  return boxes;
}

}  // namespace kvc::kernels::cuda

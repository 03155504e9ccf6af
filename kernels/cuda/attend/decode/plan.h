// The host's part of attention of few rows (decode): which calls attend_decode_kernel computes, and how the shared
// memory of a block is divided. Pure functions, tested without a device.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/mma/plan.h"

namespace kvc::kernels::cuda {

constexpr int32_t kDecodeRows = 16;      // the largest number of rows of a block
constexpr int32_t kDecodeKeys = 16;      // a tile has one or two times as many keys (decode_tile_keys)
constexpr int32_t kMaxDecodeStages = 4;  // the largest number of tiles of a warp in shared memory

// Returns why another kernel must compute all blocks of few rows over a layer, or null.
inline const char* why_not_decode(const kvc_backend_layer& layer) {
  const Type stored = stored_type(layer);
  const int32_t dims = layer.head_dim, v_dims = layer.v_head_dim;
  if (is_latent(layer)) return "V is part of K";
  if (stored == Type::kE5m2) return "K is float8_e5m2";
  if (dims == 256 && (stored == Type::kU4 || stored == Type::kE2m1)) return "256 dims of 4 bits have no instance";
  const bool is_wide_key = dims == 192 && v_dims == 128 && !is_quantised(stored);
  if (!is_wide_key && !(dims == v_dims && (dims == 64 || dims == 128 || dims == 256)))
    return "head dims have no instance";
  // Rows of 4-bit floats are copied 1/9 of a row at a time, if not many rows at once (attend/decode/blocks.cuh).
  if (stored == Type::kE2m1 && copy_bytes(layer) < dims / 16) return "rows are not aligned to 8 bytes";
  return nullptr;
}
// Returns why another kernel must compute the blocks of few rows of a call, or null. The caller has checked that tensor
// cores can compute the call (why_simple).
inline const char* why_not_decode(const kvc_backend_attend& args) {
  if (args.plan->fold_keys > 0) return "states are folded";
  if (args.key_tables != nullptr && args.layer->rope_dim > 0) return "keys are rotated on read";
  if (args.softcap != 0.0 || args.alibi_slopes != nullptr) return "scores have options";
  return why_not_decode(*args.layer);
}

KVC_HOST_DEVICE constexpr int32_t decode_bits(Type stored) {
  if (stored == Type::kU4 || stored == Type::kE2m1) return 4;
  return stored == Type::kE4m3 || stored == Type::kI8 ? 8 : 16;
}
// The number of warps of a block. A warp needs registers for 16 rows of o, and shared memory for at least two tiles.
KVC_HOST_DEVICE constexpr int32_t decode_warps(int32_t dims, Type stored) {
  return dims * decode_bits(stored) > 2048 ? 2 : 4;
}
// The number of blocks that fit on a multiprocessor by their registers.
KVC_HOST_DEVICE constexpr int32_t decode_blocks(int32_t dims, int32_t v_dims, Type stored) {
  if (decode_warps(dims, stored) == 2) return 4;
  return v_dims > 128 || (decode_bits(stored) == 8 && v_dims == 128) ? 2 : 3;
}
// The number of keys of a tile. Each warp has its own tiles. With 8-bit storage, K and V of a tile have at most 8 KiB,
// so that three tiles of each warp fit.
KVC_HOST_DEVICE constexpr int32_t decode_tile_keys(int32_t dims, Type stored) {
  return (decode_bits(stored) == 8 && dims <= 128) || stored == Type::kE2m1 ? 2 * kDecodeKeys : kDecodeKeys;
}
// The number of bytes of a row in a tile. The scales of blocks are a part of the row.
KVC_HOST_DEVICE constexpr int32_t decode_row_bytes(int32_t dims, Type stored) {
  return dims * decode_bits(stored) / 8 + (stored == Type::kE2m1 ? dims / kBlockDims : 0);
}
// The number of bytes of a tile: K, V, and the scales of both if tokens have scales.
KVC_HOST_DEVICE constexpr int32_t decode_tile_bytes(int32_t dims, int32_t v_dims, Type stored) {
  return decode_tile_keys(dims, stored) *
         (decode_row_bytes(dims, stored) + decode_row_bytes(v_dims, stored) + (tokens_have_scales(stored) ? 8 : 0));
}
// Whether the rows of each page are adjacent, and the first rows of pages and heads begin at multiples of 16 bytes.
// Also, the distance of pages must fit in 32 bits.
inline bool has_adjacent_rows(const kvc_backend_layer& layer) {
  uint64_t places = 0, far = 0;
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    places |= reinterpret_cast<uintptr_t>(pool->data);
    places |= static_cast<uint64_t>(pool->page_stride_bytes | pool->head_stride_bytes);
    far |= static_cast<uint64_t>(pool->page_stride_bytes) >> 32;
  }
  const Type stored = stored_type(layer);
  return places % 16 == 0 && far == 0 && layer.k.slot_stride_bytes == decode_row_bytes(layer.head_dim, stored) &&
         layer.v.slot_stride_bytes == decode_row_bytes(layer.v_head_dim, stored);
}
// The number of 16-bit parts whose sum is the query (attend/decode/nibbles.cuh). The tiles of the parts lie one after
// another.
KVC_HOST_DEVICE constexpr int32_t query_parts(Type q, Type stored) {
  return stored == Type::kU4 ? rotated_parts(q) : 1;
}

// The bytes of shared memory of a block besides q and tiles are at most this number (kDecodeFixedBytes).
constexpr int32_t kMostDecodeFixedBytes = 3584;

struct DecodeShape {
  int32_t stages;  // the number of tiles of a warp in shared memory; 0: not even two fit
  int32_t shared_bytes;
  int32_t blocks;  // the number of blocks that fit on a multiprocessor
};

// Chooses the shape of a block. First it chooses how many blocks share a multiprocessor: as many as fit with two stages
// each, but at most three blocks. Then it takes as many stages as fit. With more than 128 dims, three stages are
// faster than two, so the blocks must fit with three stages each. Only if no block fits with three stages, two are
// enough. With two stages, one tile of each warp is in flight while another is computed. Three blocks hide the time in
// which a block of few keys begins and ends. (On an H200, a step of a graph over 256 sequences of 100 tokens took 67 us
// a layer instead of 85 us. Attention over 1 GB of K and V took 259 us instead of 262 us.) fixed_bytes: the bytes of
// shared memory of a block besides q and tiles.
inline DecodeShape decode_shape(const kvc_backend_layer& layer, Type q, int32_t fixed_bytes, int32_t shared_of_block,
                                int32_t shared_of_multiprocessor) {
  constexpr int32_t kSystemBytes = 1024;  // reserved by the system for each block
  const Type stored = stored_type(layer);
  const int32_t warps = decode_warps(layer.head_dim, stored);
  const int32_t tile = decode_tile_bytes(layer.head_dim, layer.v_head_dim, stored);
  const int32_t before = fixed_bytes + kDecodeRows * layer.head_dim * 2 * query_parts(q, stored);
  const int32_t results = warps * kDecodeRows * layer.v_head_dim * 4;
  const int32_t wanted = layer.head_dim > 128 ? 3 : 2;
  for (const int32_t least : {wanted, 2}) {
    for (int32_t blocks = 3; blocks > 0; --blocks) {
      const int32_t share = shared_of_multiprocessor / blocks - kSystemBytes;
      const int32_t most = share < shared_of_block ? share : shared_of_block;
      for (int32_t stages = kMaxDecodeStages; stages >= least; --stages) {
        const int32_t tiles = warps * stages * tile;
        const int32_t bytes = before + (tiles > results ? tiles : results);
        const int32_t fitting = decode_blocks(layer.head_dim, layer.v_head_dim, stored);
        if (bytes <= most) return {stages, bytes, blocks < fitting ? blocks : fitting};
      }
    }
  }
  return {};
}

}  // namespace kvc::kernels::cuda

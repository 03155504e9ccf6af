// Attention on tensor cores, the host's part: which calls it can compute, and how a block's shared memory is cut. Pure
// functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "kernels/common/stored_format.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

constexpr int32_t kMmaTileKeys = 64;  // the most keys that a block looks at together
// Rows of a block: of few, its warps divide the keys of a tile; of many (kMostRows), the rows.
constexpr int32_t kMostRows = 64;
constexpr int32_t kMaxMmaDim = 256;     // of K and V: a warp holds 16 rows of o in its registers
constexpr int32_t kMaxLatentDim = 512;  // of V within a latent row: a block's warps divide the columns of o
constexpr int32_t kMaxStages = 3;       // tiles in shared memory or on their way to it

// Whether V is the first dims of K's row, in one pool (MLA) or with the rest of K's row in another: a tile is then
// loaded once and multiplied twice, by the kernel of attend/mma/latent.cuh.
KVC_HOST_DEVICE bool is_latent(const kvc_backend_layer& layer) { return layer.row_kind != KVC_BACKEND_ROW_KV; }

// Why attention of a call is left to the simple kernel (attend/simple/kernel.cuh): words, or null where tensor cores
// compute it.
//   - P is rounded to the type of the product, as it may be unless q is float32; and q is the other factor of K
//     as stored: both are float16 or both bfloat16, or K and V have 8 bits, which either holds exactly;
//   - copies are of 16 bytes;
//   - P of float16 queries is bfloat16 where tokens have scales, and V would have to be: not if it is K as well.
inline const char* why_simple(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = stored_type(layer);
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored != q && !is_quantised(stored)) return "K has another type than q";
  if (layer.head_dim % 16 != 0 || layer.v_head_dim % 16 != 0) return "a head dim is no multiple of 16";
  if (is_latent(layer)) {
    if (layer.v_head_dim > kMaxLatentDim) return "V in K has more than 512 dims";
    if (q == Type::kF16 && stored == Type::kI8) return "V in K cannot be float16 and bfloat16";
  } else if (layer.head_dim > kMaxMmaDim || layer.v_head_dim > kMaxMmaDim) {
    return "a head dim is above 256";
  }
  if (args.key_tables != nullptr && is_latent(layer) && layer.rope_offset < layer.v_head_dim) {
    return "dims of V turn where they are K's";
  }
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    const int64_t strides = pool->page_stride_bytes | pool->head_stride_bytes | pool->slot_stride_bytes;
    const uint64_t bytes = static_cast<uint64_t>(strides);
    if ((bytes | reinterpret_cast<uintptr_t>(pool->data)) % 16 != 0) return "rows are not aligned to 16 bytes";
  }
  return nullptr;
}

// How a block of a kernel is cut: its warps, its rows, the keys of its tiles.
struct MmaCut {
  int32_t rows, keys, warps;
};
constexpr MmaCut kMmaFew = {16, 64, 4}, kMmaMany = {kMostRows, 64, 4};        // attend/mma/kernel.cuh
constexpr MmaCut kLatentFew = {16, 32, 4}, kLatentMany = {kMostRows, 64, 8};  // attend/mma/latent.cuh

inline MmaCut cut_of_block(const kvc_backend_layer& layer, int32_t rows) {
  const bool many = rows == kMostRows;
  if (is_latent(layer)) return many ? kLatentMany : kLatentFew;
  return many ? kMmaMany : kMmaFew;
}

// Keys that are rotated on read are float32, and are multiplied as a sum of numbers of q's type, which have 11
// bits or 8: so many. The first lies in the tile, the others are its lower parts (attend/mma/key_rope.cuh).
KVC_HOST_DEVICE constexpr int32_t turned_parts(Type q) { return q == Type::kF16 ? 2 : 3; }

// What a call needs of shared memory beside rows and tiles.
struct MmaNeeds {
  bool folds;           // states are folded, which blocks of rows_that_fold can
  int32_t lower_parts;  // of rotated keys; 0: keys are stored as they attend
};

inline MmaNeeds needs_of(const kvc_backend_attend& args) {
  const bool turns = args.key_tables != nullptr && args.layer->rope_dim > 0;
  return {args.plan->fold_keys > 0, turns ? turned_parts(type_of(args.q.dtype)) - 1 : 0};
}

// Bytes of what the kernels keep beside q and tiles: once, and of each tile that is known.
struct MmaSizes {
  int32_t fixed, tile;
};

// Deterministic caches have one kernel for every row, alone or not: that of many rows; of latent ones that of few, in
// rounds, as states of earlier keys have no room beside those of many.
KVC_HOST_DEVICE int32_t rows_that_fold(const kvc_backend_layer& layer) {
  return is_latent(layer) ? kLatentFew.rows : kMostRows;
}

// A block's shared memory, in bytes from its begin: what is fixed; what is known of each tile [stages + 1], and where
// V's rows are [stages + 1][keys] unless V is in K; q [rows][k_pitch]; then tiles of K [keys][k_pitch] and V
// [keys][v_pitch] as the tensor cores read them, one for each stage; pitches in bytes. Where K and V have 8 bits a
// stage is [keys][k_raw] and [keys][v_raw] as stored, and there is one tile, which they are converted to. Then, where
// keys are rotated, the lower parts of one tile's dims [turned_begin, turned_end), [lower part][keys][lower_pitch]; and
// where states are folded, o of earlier keys [rows][Dv] in float32. In the end o lies over q and the tiles. Latent rows
// are all in the tile of K; P lies there after V's dims, where K's last dims were until the scores are known.
struct MmaShape {
  MmaCut cut;
  int32_t stages;  // 0: not even one fits
  int32_t k_pitch, v_pitch;
  int32_t k_raw, v_raw;              // 0 if stored as read
  int32_t p_chunk;                   // of 16 bytes, where P begins in a row of a latent tile
  int32_t turned_begin, turned_end;  // whole steps of the products around the rotated dims; equal: none is
  int32_t lower_pitch;
  int32_t records_at, v_rows_at, q_at, tiles_at, raw_at, lower_at, folded_at;
  int32_t shared_bytes;
};

inline MmaShape shape_of_stages(const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs,
                                const MmaSizes& sizes, int32_t stages) {
  const auto pitch_of = [](int32_t dims) { return (dims + 63) / 64 * 128; };
  const bool raw = is_quantised(stored_type(layer)), latent = is_latent(layer);
  MmaShape shape = {};
  shape.cut = cut_of_block(layer, rows);
  shape.stages = stages;
  shape.k_pitch = pitch_of(layer.head_dim);
  shape.v_pitch = latent ? 0 : pitch_of(layer.v_head_dim);
  if (latent) {
    const int32_t with_p = pitch_of(layer.v_head_dim) + 128;
    shape.k_pitch = shape.k_pitch > with_p ? shape.k_pitch : with_p;
    shape.p_chunk = pitch_of(layer.v_head_dim) / 16;
  }
  if (needs.lower_parts > 0) {
    shape.turned_begin = layer.rope_offset / 16 * 16;
    shape.turned_end = (layer.rope_offset + layer.rope_dim + 15) / 16 * 16;
    shape.lower_pitch = pitch_of(shape.turned_end - shape.turned_begin);
  }
  shape.k_raw = raw ? layer.head_dim : 0;
  shape.v_raw = raw && !latent ? layer.v_head_dim : 0;
  shape.records_at = sizes.fixed;
  shape.v_rows_at = shape.records_at + (stages + 1) * sizes.tile;
  const int32_t fixed_end =
      shape.v_rows_at + (layer.row_kind == KVC_BACKEND_ROW_LATENT ? 0 : (stages + 1) * shape.cut.keys * 8);
  shape.q_at = (fixed_end + 127) / 128 * 128;
  shape.tiles_at = shape.q_at + rows * shape.k_pitch;
  const int32_t tiles = raw ? 1 : stages;
  shape.raw_at = shape.tiles_at + tiles * shape.cut.keys * (shape.k_pitch + shape.v_pitch);
  shape.lower_at = shape.raw_at + stages * shape.cut.keys * (shape.k_raw + shape.v_raw);
  shape.folded_at = shape.lower_at + needs.lower_parts * shape.cut.keys * shape.lower_pitch;
  const int32_t end = shape.folded_at + (needs.folds ? rows * layer.v_head_dim * 4 : 0);
  const int32_t results_end = shape.q_at + (latent ? rows : kMostRows) * layer.v_head_dim * 4;
  shape.shared_bytes = end > results_end ? end : results_end;
  return shape;
}

// The most stages with which two blocks share a multiprocessor, so that one computes while the other waits; where none
// does, the most that fit a block. Latent blocks of many rows have no registers for a second one.
inline MmaShape shape_of_block(const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs,
                               const MmaSizes& sizes, int32_t shared_of_block, int32_t shared_of_multiprocessor) {
  constexpr int32_t kSystemBytes = 1024;  // of each block
  for (int32_t blocks = cut_of_block(layer, rows).warps > 4 ? 1 : 2; blocks > 0; --blocks) {
    const int32_t share = shared_of_multiprocessor / blocks - kSystemBytes;
    const int32_t most = share < shared_of_block ? share : shared_of_block;
    for (int32_t stages = kMaxStages; stages > 0; --stages) {
      const MmaShape shape = shape_of_stages(layer, rows, needs, sizes, stages);
      if (shape.shared_bytes <= most) return shape;
    }
  }
  return {};
}

}  // namespace kvc::kernels::cuda

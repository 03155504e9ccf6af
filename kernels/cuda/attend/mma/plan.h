// The host's part of attention on tensor cores: which calls tensor cores can compute, and how the shared memory of a
// block is divided. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "kernels/common/bias.h"
#include "kernels/common/stored_format.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

constexpr int32_t kMmaTileKeys = 64;  // the largest number of keys of a tile
// The largest number of rows of a block, except in attend_many_kernel (below). In a block of few rows, the warps divide
// the keys of a tile. In a block of kMostRows rows, the warps divide the rows.
constexpr int32_t kMostRows = 64;
// The largest number of dims of K and of V, if V has rows of its own. A warp has 16 rows of o in registers.
constexpr int32_t kMaxMmaDim = 256;
// The largest number of dims of V in a latent row. The warps of a block divide the columns of o.
constexpr int32_t kMaxLatentDim = 512;
constexpr int32_t kMaxStages = 3;  // the largest number of tiles of a block in shared memory or in flight

// Whether V is the first dims of K's row (MLA). The other dims of K are in the same pool or in a second pool. A tile of
// such rows is loaded once and multiplied twice (attend/mma/latent.cuh).
KVC_HOST_DEVICE bool is_latent(const kvc_backend_layer& layer) { return layer.row_kind != KVC_BACKEND_ROW_KV; }

// The rows of fp8_ds_mla (row_formats.h): 512 elements of float8, 4 float32 scales, and 64 dims of bfloat16. Attention
// on tensor cores reads no other block rows.
constexpr int32_t kDsMlaDims = 576, kDsMlaLatentDims = 512, kDsMlaRotaryAt = 528, kDsMlaRowBytes = 656;
KVC_HOST_DEVICE float ds_mla_scale(const unsigned char* row, int32_t dim) {
  float scale;
  memcpy(&scale, row + kDsMlaLatentDims + dim / 128 * int64_t{4}, sizeof scale);
  return scale;
}
inline bool is_ds_mla(const kvc_backend_format& format) {
  return has_block_rows(format) && format.k.segments[0].scales.place == KVC_BACKEND_SCALES_SEGMENT;
}

KVC_HOST_DEVICE constexpr bool tokens_have_scales(Type stored) { return stored == Type::kI8 || stored == Type::kU4; }

// Returns the bytes of a stored row of `dims` dims whose elements have fewer than 16 bits. Block rows must be those of
// fp8_ds_mla.
KVC_HOST_DEVICE int32_t raw_row_bytes(Type stored, int32_t dims) {
  if (stored == Type::kBlockRow) return kDsMlaRowBytes;
  if (stored == Type::kU4) return dims / 2;
  return stored == Type::kE2m1 ? dims / 2 + dims / kernels::kBlockDims : dims;
}

// The bytes that a copy can move at once: the largest power of two, up to 16, of which all rows of a layer and their
// addresses are multiples.
inline int32_t copy_bytes(const kvc_backend_layer& layer) {
  const Type stored = stored_type(layer);
  uint64_t all = 16;
  if (is_quantised(stored)) {
    all |= static_cast<uint64_t>(raw_row_bytes(stored, layer.head_dim) | raw_row_bytes(stored, layer.v_head_dim));
  }
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    all |= static_cast<uint64_t>(pool->page_stride_bytes | pool->head_stride_bytes | pool->slot_stride_bytes);
    all |= reinterpret_cast<uintptr_t>(pool->data);
  }
  return static_cast<int32_t>(all & (~all + 1));
}

// Whether K and V have rows of their own, each of which is one block of the rotation of uint4.
inline bool is_one_block(const kvc_backend_layer& layer) {
  const int32_t dims = layer.head_dim;
  return !is_latent(layer) && layer.v_head_dim == dims && (dims == 64 || dims == 128);
}

// Returns why the simple kernel (attend/simple/kernel.cuh) must compute a call, or null if tensor cores can compute it.
// Tensor cores need the following:
//   - Scores have no bias and no mask.
//   - Head dims are multiples of 16, and at most kMaxMmaDim. In latent rows, only V has a limit: kMaxLatentDim.
//   - If keys of latent rows are rotated on read, the rotated dims lie after V.
//   - Both factors of a product have the same 16-bit type. So q has the type of stored K, or K and V have 8 or 4 bits,
//     which both 16-bit types represent exactly. P is rounded to that type, which the contract allows unless q is
//     float32.
//   - A row of uint4 is one block of the rotation (kernels/common/hadamard.h), and RoPE on read is not needed.
//   - Block rows are those of fp8_ds_mla, and q has the type of their last dims, bfloat16. The other dims become
//     bfloat16: element * scale, rounded.
//   - Rows are aligned to 16 bytes, because copies to shared memory move 16 bytes. Rows of 4-bit floats may be aligned
//     to 4 bytes (copy_bytes).
//   - With scales of tokens and float16 queries, P is bfloat16, so V must be bfloat16 too. That is impossible if the
//     same row is also K.
inline const char* why_simple(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = stored_type(layer);
  if (has_bias_or_mask(args.bias)) return "scores have a bias or a mask";
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored == Type::kBlockRow && !is_ds_mla(layer.format)) return "blocks of dims have scales";
  if (stored == Type::kBlockRow && q != Type::kBf16) return "q has another type than the last dims of K";
  if (stored != q && !is_quantised(stored)) return "K has another type than q";
  if (layer.head_dim % 16 != 0 || layer.v_head_dim % 16 != 0) return "a head dim is no multiple of 16";
  if (is_latent(layer)) {
    if (layer.v_head_dim > kMaxLatentDim) return "V of a latent row has more than 512 dims";
    if (q == Type::kF16 && stored == Type::kI8) return "a latent row cannot be float16 and bfloat16";
  } else if (layer.head_dim > kMaxMmaDim || layer.v_head_dim > kMaxMmaDim) {
    return "a head dim is above 256";
  }
  if (args.key_tables != nullptr && is_latent(layer) && layer.rope_offset < layer.v_head_dim) {
    return "dims of V are rotated where they are K's";
  }
  if (stored == Type::kU4 && !is_one_block(layer)) return "rows of uint4 have another number of dims";
  if (stored == Type::kU4 && args.key_tables != nullptr) return "keys are rotated twice on read";
  if (copy_bytes(layer) < 4) return "rows are not aligned to 4 bytes";
  if (copy_bytes(layer) < 16 && stored != Type::kE2m1) return "rows are not aligned to 16 bytes";
  return nullptr;
}

// The number of rows of a block, of keys of a tile, and of warps of a block.
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

// A key that is rotated on read is multiplied as a sum of 16-bit parts (attend/mma/key_rope.cuh). Returns the number of
// parts. float16 has 11 bits, and bfloat16 has 8. The first part is in the tile, and the others are the lower parts.
KVC_HOST_DEVICE constexpr int32_t rotated_parts(Type q) { return q == Type::kF16 ? 2 : 3; }

// What the shared memory of a block must hold besides rows and tiles.
struct MmaNeeds {
  bool folds;           // states are folded (attend/mma/kernel.cuh); only blocks of rows_that_fold rows can do this
  int32_t lower_parts;  // tiles of lower parts of keys; 0: keys are multiplied as stored
};

inline MmaNeeds needs_of(const kvc_backend_attend& args) {
  const bool turns = (args.key_tables != nullptr && args.layer->rope_dim > 0) || stored_type(*args.layer) == Type::kU4;
  return {args.plan->fold_keys > 0, turns ? rotated_parts(type_of(args.q.dtype)) - 1 : 0};
}

// The bytes that the kernels keep besides q and tiles: once (fixed), and for each tile that is prepared (tile).
struct MmaSizes {
  int32_t fixed, tile;
};

// In a deterministic cache, one kernel computes every row, this many rows at a time. For latent rows, it is the kernel
// of few rows, because shared memory has no space for o of earlier keys of many rows. This kernel then computes a block
// of many rows in rounds of 16 rows.
KVC_HOST_DEVICE int32_t rows_that_fold(const kvc_backend_layer& layer) {
  return is_latent(layer) ? kLatentFew.rows : kMostRows;
}
// Returns the number of rows of a block, if blocks of the plan have up to `most` rows. Latent rows that are rotated on
// read have an instance of few rows only, because one of many rows would need more registers than sm_80 has.
inline int32_t rows_of_mma_block(const kvc_backend_layer& layer, const MmaNeeds& needs, int32_t most) {
  if (needs.folds) return rows_that_fold(layer);
  return is_latent(layer) && needs.lower_parts > 0 ? kLatentFew.rows : most;
}

// The shared memory of a block. Offsets and pitches are in bytes. It consists of these areas, in this order:
//   fixed       what MmaSizes.fixed counts
//   records_at  [stages + 1]: an MmaTile for each tile
//   v_rows_at   [stages + 1][keys]: byte offsets of V's rows; only if V has a pool of its own
//   q_at        [rows][k_pitch]
//   tiles_at    for each stage K [keys][k_pitch] and V [keys][v_pitch], as the tensor cores read them
//   raw_at      only if K and V do not have 16 bits: for each stage [keys][k_raw] and [keys][v_raw], as stored.
//               In this case, tiles_at has only one tile
//   lower_at    only for keys that are rotated on read: [lower part][keys][lower_pitch]. These are the dims
//               [rotated_begin, rotated_end) of one tile
//   folded_at   only for folded states: o of earlier keys, [rows][Dv] float32
// At the end, o overwrites q and the tiles. A latent row is in the tile of K. After its scores are computed, P
// overwrites the dims of K that follow V.
struct MmaShape {
  MmaCut cut;
  int32_t stages;  // 0: not even one stage fits
  int32_t k_pitch, v_pitch;
  int32_t k_raw, v_raw;                // the bytes of a stored row; 0: tiles are read as stored
  int32_t copy_bytes;                  // the bytes that a copy moves: 4, 8 or 16
  int32_t p_chunk;                     // the 16-byte chunk where P begins, in a row of a latent tile
  int32_t rotated_begin, rotated_end;  // the rotated dims, extended to multiples of kMmaDepth; equal: no dims
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
    const bool all = stored_type(layer) == Type::kU4;
    shape.rotated_begin = all ? 0 : layer.rope_offset / 16 * 16;
    shape.rotated_end = all ? layer.head_dim : (layer.rope_offset + layer.rope_dim + 15) / 16 * 16;
    shape.lower_pitch = pitch_of(shape.rotated_end - shape.rotated_begin);
  }
  shape.k_raw = raw ? raw_row_bytes(stored_type(layer), layer.head_dim) : 0;
  shape.v_raw = raw && !latent ? raw_row_bytes(stored_type(layer), layer.v_head_dim) : 0;
  shape.copy_bytes = copy_bytes(layer);
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

// Returns the shape with the largest number of stages with which two blocks fit on a multiprocessor. Then one block
// computes while the other waits. If two blocks do not fit with any number of stages, it returns the shape with the
// largest number of stages with which one block fits. One latent block of many rows needs all registers, so two of them
// are not tried.
inline MmaShape shape_of_block(const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs,
                               const MmaSizes& sizes, int32_t shared_of_block, int32_t shared_of_multiprocessor) {
  constexpr int32_t kSystemBytes = 1024;  // reserved by the system for each block
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

// ---- attend_many_kernel (attend/mma/many_rows.cuh) --------------------------------------------------

constexpr MmaCut kManyCut = {128, 64, 4};

// Returns why attend_mma_kernel must compute the blocks of many rows of a call, or null if attend_many_kernel can.
// The caller has checked that tensor cores can compute the call (why_simple).
inline const char* why_not_many(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  if (stored_type(layer) != type_of(args.q.dtype)) return "K has another type than q";
  if (is_latent(layer)) return "rows are latent";
  const int32_t dims = layer.head_dim;
  if ((dims != 64 && dims != 128 && dims != 192) || layer.v_head_dim != (dims == 192 ? 128 : dims)) {
    return "the head dims of K and V are none of 64, 128, and 192 with 128";
  }
  if (args.key_tables != nullptr) return "keys are rotated on read";
  if (args.plan->fold_keys > 0) return "the cache is deterministic";
  if (args.softcap != 0.0 || args.alibi_slopes != nullptr) return "scores have softcap or ALiBi";
  if (args.q_scales.data != nullptr || args.k_scales.data != nullptr || layer.k_scales.data != nullptr) {
    return "scores have scales";
  }
  if (args.lists.block_tokens != 0) return "keys are listed";
  return nullptr;
}

// The shared memory of a block: the fixed part, q [dims / 64][128 rows][64], K [dims / 64][64 keys][64] and V the same.
// stages: 0 if the block does not fit.
inline MmaShape many_shape(const kvc_backend_layer& layer, int32_t fixed_bytes, int32_t shared_of_block) {
  MmaShape shape = {};
  shape.cut = kManyCut;
  shape.q_at = (fixed_bytes + 127) / 128 * 128;
  shape.tiles_at = shape.q_at + kManyCut.rows * layer.head_dim * 2;
  shape.shared_bytes = shape.tiles_at + kManyCut.keys * (layer.head_dim + layer.v_head_dim) * 2;
  shape.stages = shape.shared_bytes <= shared_of_block ? 1 : 0;
  return shape;
}

}  // namespace kvc::kernels::cuda

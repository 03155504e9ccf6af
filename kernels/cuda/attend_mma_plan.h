// Attention on tensor cores, the host's part: which calls it can compute, and how a block's shared memory is cut. Pure
// functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

constexpr int32_t kMmaTileKeys = 64;  // keys that a block looks at together
// Rows of a block: of few, its warps divide the keys of a tile; of many (kMostRows), the rows.
constexpr int32_t kMostRows = 64;
constexpr int32_t kMaxMmaDim = 256;  // of K and V: a warp holds 16 rows of o in its registers
constexpr int32_t kMaxStages = 3;    // tiles in shared memory or on their way to it

// Why attention of a call is left to the simple kernel (attend.cuh): words, or null where tensor cores compute it.
//   - P is rounded to the type of the product, which spec 6 allows unless q is float32; and q is the other factor of K
//     as stored: both are float16 or both bfloat16, or K and V have 8 bits, which either holds exactly;
//   - copies are of 16 bytes;
//   - deterministic caches have one kernel for every row, whatever it is computed beside.
inline const char* why_simple(const kvc_backend_attend& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = type_of(layer.dtype);
  if (q != Type::kF16 && q != Type::kBf16) return "q has not 16 bits";
  if (stored != q && !is_quantised(stored)) return "K has another type than q";
  if (layer.head_dim % 16 != 0 || layer.v_head_dim % 16 != 0) return "a head dim is no multiple of 16";
  if (layer.head_dim > kMaxMmaDim || layer.v_head_dim > kMaxMmaDim) return "a head dim is above 256";
  if (args.key_tables != nullptr) return "keys turn where they are read";
  if (layer.k_behind_v != 0) return "K is in two pools";
  if (args.fold_keys > 0) return "the cache is deterministic";
  for (const kvc_backend_pool* pool : {&layer.k, &layer.v}) {
    const uint64_t elements = static_cast<uint64_t>(pool->page_stride | pool->head_stride | pool->slot_stride);
    const uint64_t bytes = elements * static_cast<uint64_t>(type_bytes(stored));
    if ((bytes | reinterpret_cast<uintptr_t>(pool->data)) % 16 != 0) return "rows are not aligned to 16 bytes";
  }
  return nullptr;
}

// A block's shared memory, in bytes from its begin: what is fixed; q [rows][k_pitch]; then tiles of K [64][k_pitch] and
// V [64][v_pitch] as the tensor cores read them, one for each stage; pitches in bytes. Where K and V have 8 bits a
// stage is [64][k_raw] and [64][v_raw] as stored, and there is one tile, which they are widened to. In the end o
// [64][Dv] in float32 lies over q and the tiles.
struct MmaShape {
  int32_t rows;    // 16 or kMostRows
  int32_t stages;  // 0: not even one fits
  int32_t k_pitch, v_pitch;
  int32_t k_raw, v_raw;  // 0 if stored as read
  int32_t q_at, tiles_at, raw_at;
  int32_t shared_bytes;
};

inline MmaShape shape_of_stages(const kvc_backend_layer& layer, int32_t rows, int32_t fixed_bytes, int32_t stages) {
  const auto pitch_of = [](int32_t dims) { return (dims + 63) / 64 * 128; };
  const bool raw = is_quantised(type_of(layer.dtype));
  MmaShape shape = {};
  shape.rows = rows;
  shape.stages = stages;
  shape.k_pitch = pitch_of(layer.head_dim);
  shape.v_pitch = pitch_of(layer.v_head_dim);
  shape.k_raw = raw ? layer.head_dim : 0;
  shape.v_raw = raw ? layer.v_head_dim : 0;
  shape.q_at = (fixed_bytes + 127) / 128 * 128;
  shape.tiles_at = shape.q_at + rows * shape.k_pitch;
  const int32_t tiles = raw ? 1 : stages;
  shape.raw_at = shape.tiles_at + tiles * kMmaTileKeys * (shape.k_pitch + shape.v_pitch);
  const int32_t end = shape.raw_at + stages * kMmaTileKeys * (shape.k_raw + shape.v_raw);
  const int32_t results_end = shape.q_at + kMostRows * layer.v_head_dim * 4;
  shape.shared_bytes = end > results_end ? end : results_end;
  return shape;
}

// The most stages with which two blocks share a multiprocessor, so that one computes while the other waits; where none
// does, the most that fit a block.
inline MmaShape shape_of_block(const kvc_backend_layer& layer, int32_t rows, int32_t fixed_bytes,
                               int32_t shared_of_block, int32_t shared_of_multiprocessor) {
  constexpr int32_t kSystemBytes = 1024;  // of each block
  for (int32_t blocks : {2, 1}) {
    const int32_t share = shared_of_multiprocessor / blocks - kSystemBytes;
    const int32_t most = share < shared_of_block ? share : shared_of_block;
    for (int32_t stages = kMaxStages; stages > 0; --stages) {
      const MmaShape shape = shape_of_stages(layer, rows, fixed_bytes, stages);
      if (shape.shared_bytes <= most) return shape;
    }
  }
  return {};
}

}  // namespace kvc::kernels::cuda

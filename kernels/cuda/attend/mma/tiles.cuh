// What attention on tensor cores does before the products: it finds the rows of the block and the keys that they see,
// and copies tiles of K and V to shared memory.
//
// A tile has 64 or 32 keys (attend/mma/plan.h), and begins at a multiple of this number. Tiles that no row sees are
// skipped. For each other tile, prepare_tile finds which keys the rows see. For each key, one thread finds the address.
// So a warp needs only one or two loads for the page ids, whatever the page size. One iteration later, begin_tile
// starts the copies. A thread copies 16 bytes at a time (MmaShape.copy_bytes: 4 or 8 bytes if rows are aligned to no
// more), and neighbouring threads copy neighbouring bytes. `stages` - 1 iterations after that, the tile is computed. A
// key that no row sees is not read. Its place in the tile is filled with zeros.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

struct MmaCall {
  AttendCall attend;
  MmaShape shape;
  int32_t has_units;    // scores are multiplied by scales of q or K
  uint32_t scale_bits;  // the bits of a token's scale that are not a zero point
};
using MmaKernel = void (*)(MmaCall);

// The properties of a tile of keys, from prepare_tile until the tile is computed.
struct MmaTile {
  int32_t begin;                                       // the first key
  int32_t is_full;                                     // every row sees every key, and `seen` is not filled
  uint64_t seen[kMostRows];                            // for each row, a bit for each key
  int64_t k_row[kMmaTileKeys];                         // byte offsets in the pool of K; -1: no row sees the key
  float k_scale[kMmaTileKeys], v_scale[kMmaTileKeys];  // of tokens; those of uint4 include zero points (scale_of_key)
  int32_t position[kMmaTileKeys];
};

struct MmaFixed {
  const kvc_backend_item* item;
  AttendBlock block;  // row_begin: of the current round
  int32_t group;
  kvc_backend_attend args;
  QueryMask masks[kMostRows];
  QueryPlace places[kMostRows];
  KeyTree tree;
  PageCursor pages;  // the page list of the item, with no leaf loaded
  float units[kMostRows], slopes[kMostRows];
  float m[2 * kMostRows], l[kMostRows];  // m, l: [kKeyWarps][row] (attend/mma/kernel.cuh), or as fold_columns describes
  float factors[kMostRows];              // [row][kKeyWarps]: the factor of each warp's o
  uint32_t keys_begin, keys_end;         // keys that some row sees
  uint32_t full_begin, full_end;         // keys that all rows see
};
constexpr MmaSizes kMmaSizes = {sizeof(MmaFixed), sizeof(MmaTile)};
static_assert(sizeof(MmaFixed) % 8 == 0 && sizeof(MmaTile) % 8 == 0, "one follows the other in memory");

struct MmaState {
  const MmaCall* call;
  MmaFixed* fixed;
  unsigned char* shared;
  int32_t rows, warp, lane, thread;
  const int32_t* leaf;  // the leaf of the page list that the thread read last
  int32_t leaf_index;   // the index of that leaf; -1: none
  uint32_t next_key;    // where the next tile to prepare begins
  int32_t prepared;     // the number of prepared tiles

  __device__ __forceinline__ int32_t threads() const { return call->shape.cut.warps * kWarpSize; }
  __device__ __forceinline__ MmaTile& tile(int32_t index) const {
    MmaTile* const tiles = reinterpret_cast<MmaTile*>(shared + call->shape.records_at);
    return tiles[index % (call->shape.stages + 1)];
  }
  // The byte offsets of V's rows of a tile, with -1 as in k_row.
  __device__ __forceinline__ int64_t* v_rows(int32_t index) const {
    if (call->attend.layer.row_kind == KVC_BACKEND_ROW_LATENT) return tile(index).k_row;
    int64_t* const rows = reinterpret_cast<int64_t*>(shared + call->shape.v_rows_at);
    return rows + index % (call->shape.stages + 1) * call->shape.cut.keys;
  }
  __device__ __forceinline__ unsigned char* k_tile(int32_t index) const {
    const MmaShape& shape = call->shape;
    const int32_t slot = shape.k_raw > 0 ? 0 : index % shape.stages;
    return shared + shape.tiles_at + slot * shape.cut.keys * (shape.k_pitch + shape.v_pitch);
  }
  __device__ __forceinline__ unsigned char* v_tile(int32_t index) const {
    return k_tile(index) + call->shape.cut.keys * call->shape.k_pitch;
  }
  __device__ __forceinline__ unsigned char* raw_tile(int32_t index) const {
    const MmaShape& shape = call->shape;
    return shared + shape.raw_at + index % shape.stages * shape.cut.keys * (shape.k_raw + shape.v_raw);
  }
};

// The scale of a token, without the zero point of uint4.
__device__ __forceinline__ float scale_of_key(const MmaState& state, float stored) {
  return float_from_bits(float_bits(stored) & state.call->scale_bits);
}

// The query head of a row.
__device__ __forceinline__ int32_t mma_head_of(const MmaFixed& fixed, int32_t r) {
  return fixed.block.head * fixed.group + (fixed.block.row_begin + r) % fixed.group;
}

__device__ __forceinline__ void begin_mma_row(const MmaState& state, int32_t r) {
  MmaFixed& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  find_row(call, *fixed.item, fixed.block, fixed.group, r, &fixed);
  const int32_t head = mma_head_of(fixed, r);
  fixed.m[r] = fixed.m[kMostRows + r] = -INFINITY;
  fixed.l[r] = 0.0f;
  fixed.slopes[r] = call.args.alibi_slopes == nullptr
                        ? 0.0f
                        : call.args.alibi_slopes[fixed.places[r].row * call.args.alibi_row_stride + head];
}

// Finds the masks, places and scales of the block's rows, and the keys that they see. Ends with a barrier.
__device__ __forceinline__ void begin_mma_rows(const MmaState& state) {
  MmaFixed& fixed = *state.fixed;
  if (state.thread == 0) {
    point_to_call(state.call->attend, *fixed.item, &fixed);
    fixed.pages = pages_of_item(&state.call->attend.plan.arrays.tables, fixed.item);
  }
  __syncthreads();
  if (state.thread < state.rows) begin_mma_row(state, state.thread);
  __syncthreads();
  if (state.warp == 0) find_key_bounds(&fixed, state.rows, state.lane);
  __syncthreads();
}

// Writes q to shared memory, two dims at a time. q is first rotated, if the call has cos_sin, and multiplied by q_sign
// (attend/common/call.cuh). Rows beyond the block's last row become zeros.
template <class Q>
__device__ __forceinline__ void load_mma_queries(const MmaState& state) {
  const AttendCall& call = state.call->attend;
  const MmaShape& shape = state.call->shape;
  const int32_t pairs = call.layer.head_dim / 2;
  for (int32_t i = state.thread; i < shape.cut.rows * pairs; i += state.threads()) {
    const int32_t r = i / pairs, d = i % pairs * 2;
    float low = 0.0f, high = 0.0f;
    if (r < state.rows) {
      const int32_t head = mma_head_of(*state.fixed, r);
      low = attended_query(call, *state.fixed->item, state.fixed->places[r], head, d);
      high = attended_query(call, *state.fixed->item, state.fixed->places[r], head, d + 1);
    }
    const uint32_t pair = pack(Q{}, low * call.q_sign, high * call.q_sign);
    memcpy(state.shared + shape.q_at + swizzled(r, d / 8, shape.k_pitch) + d % 8 * 2, &pair, sizeof pair);
  }
}

// Finds the addresses and scales of key `i` of a tile. begin: the first key of the tile.
__device__ __forceinline__ void find_mma_key(MmaState& state, MmaTile& tile, int64_t* v_rows, int32_t begin,
                                             int32_t i) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  const int32_t key = begin + i, head = state.fixed->block.head;
  int64_t page, slot;
  if (has_lists(state.call->attend)) {
    const ListedKey listed = listed_key(state.call->attend, *state.fixed->item, state.fixed->places[0], head, key);
    page = listed.page;
    slot = listed.slot;
    tile.position[i] = listed.position;
  } else {
    PageCursor pages = state.fixed->pages;
    pages.leaf = state.leaf;
    pages.leaf_index = state.leaf_index;
    page = page_at(&pages, key / layer.page_size);
    slot = key % layer.page_size;
    state.leaf = pages.leaf;
    state.leaf_index = static_cast<int32_t>(pages.leaf_index);
    tile.position[i] = key_position(&state.fixed->tree, key);
  }
  tile.k_row[i] =
      page * layer.k.page_stride_bytes + head * layer.k.head_stride_bytes + slot * layer.k.slot_stride_bytes;
  v_rows[i] = page * layer.v.page_stride_bytes + head * layer.v.head_stride_bytes + slot * layer.v.slot_stride_bytes;
  if (!has_token_scales(&layer.k_scales)) return;
  tile.k_scale[i] = *token_scale(&layer.k_scales, page, head, slot);
  tile.v_scale[i] = *token_scale(&layer.v_scales, page, head, slot);
}

// Fills `seen` of the tile whose first key is `begin`. Returns a bit mask of the keys that any row sees. All threads
// call it.
__device__ __forceinline__ uint64_t find_seen(const MmaState& state, MmaTile& tile, int32_t begin) {
  const MmaFixed& fixed = *state.fixed;
  const bool wide = state.call->shape.cut.keys > kWarpSize;
  for (int32_t r = state.warp; r < state.rows; r += state.call->shape.cut.warps) {
    const int32_t key = begin + state.lane;
    const uint64_t low = __ballot_sync(kAllLanes, sees_key(&fixed.tree, &fixed.masks[r], key));
    const uint64_t high = __ballot_sync(kAllLanes, wide && sees_key(&fixed.tree, &fixed.masks[r], key + kWarpSize));
    if (state.lane == 0) tile.seen[r] = low | high << kWarpSize;
  }
  __syncthreads();
  uint64_t any = 0;
  for (int32_t r = 0; r < state.rows; ++r) any |= tile.seen[r];
  return any;
}

// Finds the next tile that some row sees. Returns false if there is none. All threads call it. The result may be read
// after the next barrier. The tile that was prepared `stages` + 1 tiles before must have been computed, because its
// record is overwritten.
__device__ __forceinline__ bool prepare_tile(MmaState& state) {
  MmaFixed& fixed = *state.fixed;
  MmaTile& tile = state.tile(state.prepared);
  const uint32_t keys = static_cast<uint32_t>(state.call->shape.cut.keys);
  while (state.next_key < fixed.keys_end) {
    const uint32_t begin = state.next_key;
    state.next_key += keys;
    const bool is_full = begin >= fixed.full_begin && begin + keys <= fixed.full_end;
    const uint64_t any = is_full ? ~uint64_t{0} : find_seen(state, tile, static_cast<int32_t>(begin));
    if (any == 0) {
      __syncthreads();  // `seen` will be overwritten
      continue;
    }
    if (state.thread < static_cast<int32_t>(keys)) {
      int64_t* const v_rows = state.v_rows(state.prepared);
      const int32_t i = state.thread;
      if (i == 0) {
        tile.begin = static_cast<int32_t>(begin);
        tile.is_full = is_full ? 1 : 0;
      }
      tile.k_row[i] = v_rows[i] = -1;
      tile.k_scale[i] = tile.v_scale[i] = 1.0f;
      tile.position[i] = 0;
      if (((any >> i) & 1u) != 0) find_mma_key(state, tile, v_rows, static_cast<int32_t>(begin), i);
    }
    ++state.prepared;
    return true;
  }
  return false;
}

// Where the rows of a tile are written: from the 16-byte chunk `first_chunk` of each row on. Rows whose elements have
// fewer than 16 bits are not swizzled.
struct TileRows {
  unsigned char* begin;
  int32_t pitch, first_chunk;
  bool is_swizzled;
};

// Starts a copy of kBytes bytes, which are aligned.
template <int kBytes>
__device__ __forceinline__ void begin_piece(unsigned char* shared, const void* global, bool there) {
  if constexpr (kBytes == 16) begin_copy(shared, global, there);
  if constexpr (kBytes == 8) begin_half_copy(shared, global, there);
  if constexpr (kBytes == 4) begin_float_copy(reinterpret_cast<float*>(shared), global, there);
}

// Starts the copies of a tile's rows, kBytes at a time. Each row has `row_bytes` bytes.
template <int kBytes>
__device__ __forceinline__ void copy_rows_by(const MmaState& state, const void* pool, const int64_t* rows,
                                             int32_t row_bytes, const TileRows& target) {
  const int32_t pieces = row_bytes / kBytes, keys = state.call->shape.cut.keys, threads = state.threads();
  const int32_t keys_on = threads / pieces, pieces_on = threads % pieces;
  int32_t key = state.thread / pieces, piece = state.thread % pieces;
#pragma unroll 2
  while (key < keys) {
    const int64_t row = rows[key];
    const bool there = row >= 0;
    const unsigned char* const source = static_cast<const unsigned char*>(pool) + (there ? row + piece * kBytes : 0);
    const int32_t place = target.is_swizzled ? swizzled(key, target.first_chunk + piece, target.pitch)
                                             : key * target.pitch + target.first_chunk * 16 + piece * kBytes;
    begin_piece<kBytes>(target.begin + place, source, there);
    key += keys_on;
    piece += pieces_on;
    if (piece >= pieces) {
      piece -= pieces;
      ++key;
    }
  }
}

__device__ __forceinline__ void copy_rows(const MmaState& state, const void* pool, const int64_t* rows,
                                          int32_t row_bytes, const TileRows& target) {
  const int32_t bytes = state.call->shape.copy_bytes;
  if (bytes == 16) copy_rows_by<16>(state, pool, rows, row_bytes, target);
  if (bytes == 8) copy_rows_by<8>(state, pool, rows, row_bytes, target);
  if (bytes == 4) copy_rows_by<4>(state, pool, rows, row_bytes, target);
}

// Starts the copies of a prepared tile. A latent row in one pool is one copy. A latent row in two pools is two copies:
// V's part goes to the begin of the row in the tile, and the other dims of K go after it.
__device__ __forceinline__ void begin_tile(const MmaState& state, int32_t index) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  const MmaShape& shape = state.call->shape;
  const MmaTile& tile = state.tile(index);
  const bool raw = shape.k_raw > 0;
  const int32_t bytes = raw ? 1 : 2,
                behind = layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT ? layer.v_head_dim * bytes : 0;
  unsigned char* const k = raw ? state.raw_tile(index) : state.k_tile(index);
  copy_rows(state, layer.k.data, tile.k_row, (raw ? shape.k_raw : layer.head_dim * bytes) - behind,
            {k, raw ? shape.k_raw : shape.k_pitch, behind / 16, !raw});
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT) return;
  TileRows v = {k, raw ? shape.k_raw : shape.k_pitch, 0, !raw};
  if (behind == 0) {
    v.begin = raw ? k + shape.cut.keys * shape.k_raw : state.v_tile(index);
    v.pitch = raw ? shape.v_raw : shape.v_pitch;
  }
  copy_rows(state, layer.v.data, state.v_rows(index), raw && behind == 0 ? shape.v_raw : layer.v_head_dim * bytes, v);
}

// Converts the stored rows of a tile, whose elements have 8 bits, to a swizzled tile. dims: the number of dims of a
// row.
template <class T>
__device__ __forceinline__ void dequantise_rows(const MmaState& state, Type stored, const unsigned char* raw,
                                                int32_t dims, int32_t pitch, unsigned char* tile) {
  const int32_t parts = dims / 8;  // 8 elements: half a chunk as stored, a whole chunk of the tile
  for (int32_t i = state.thread; i < state.call->shape.cut.keys * parts; i += state.threads()) {
    const int32_t key = i / parts, part = i % parts;
    uint32_t from[2], to[4];
    memcpy(from, __builtin_assume_aligned(raw + key * dims + part * 8, 8), sizeof from);
    const bool has_odd = (odd_bytes(stored, from[0]) | odd_bytes(stored, from[1])) != 0;
    dequantise_eight(T{}, stored, from, has_odd, to);
    memcpy(__builtin_assume_aligned(tile + swizzled(key, part, pitch), 16), to, sizeof to);
  }
}

// Does the same for rows of fp8_ds_mla (plan.h), which become bfloat16.
__device__ __forceinline__ void dequantise_ds_mla_rows(const MmaState& state, const unsigned char* raw, int32_t pitch,
                                                       unsigned char* tile) {
  constexpr int32_t kParts = kDsMlaDims / 8, kLatentParts = kDsMlaLatentDims / 8;  // a part is a chunk of the tile
  for (int32_t i = state.thread; i < state.call->shape.cut.keys * kParts; i += state.threads()) {
    const int32_t key = i / kParts, part = i % kParts;
    const unsigned char* const row = raw + key * kDsMlaRowBytes;
    uint32_t to[4];
    if (part < kLatentParts) {
      uint32_t from[2];
      memcpy(from, __builtin_assume_aligned(row + part * 8, 8), sizeof from);
      dequantise_eight(Bf16{}, Type::kE4m3, from, true, to);
      const float scale = ds_mla_scale(row, part * 8);
#pragma unroll
      for (uint32_t& pair : to) {
        pair = pack(Bf16{}, float_from_bits(pair << 16) * scale, float_from_bits(pair & 0xffff0000u) * scale);
      }
    } else {
      memcpy(to, __builtin_assume_aligned(row + kDsMlaRotaryAt + (part - kLatentParts) * 16, 16), sizeof to);
    }
    memcpy(__builtin_assume_aligned(tile + swizzled(key, part, pitch), 16), to, sizeof to);
  }
}

// Does the same for rows of 4-bit floats of `dims` dims.
template <class T>
__device__ __forceinline__ void dequantise_nibble_rows(const MmaState& state, const unsigned char* raw, int32_t dims,
                                                       int32_t pitch, unsigned char* tile) {
  const int32_t parts = dims / 8, row_bytes = raw_row_bytes(Type::kE2m1, dims);
  for (int32_t i = state.thread; i < state.call->shape.cut.keys * parts; i += state.threads()) {
    const int32_t key = i / parts, part = i % parts;
    const unsigned char* const row = raw + key * row_bytes;
    uint32_t eight, to[4];
    memcpy(&eight, __builtin_assume_aligned(row + part * 4, 4), sizeof eight);
    dequantise_nibbles(T{}, eight, row[dims / 2 + part * 8 / kernels::kBlockDims], to);
    memcpy(__builtin_assume_aligned(tile + swizzled(key, part, pitch), 16), to, sizeof to);
  }
}

// Converts rows of V in uint4 to levels minus zero points. scales: the scales of the tile's keys, with the zero points.
template <class P>
__device__ __forceinline__ void dequantise_level_rows(const MmaState& state, const float* scales,
                                                      const unsigned char* raw, int32_t dims, int32_t pitch,
                                                      unsigned char* tile) {
  const int32_t parts = dims / 8;
  for (int32_t i = state.thread; i < state.call->shape.cut.keys * parts; i += state.threads()) {
    const int32_t key = i / parts, part = i % parts;
    const uint32_t zeros = static_cast<uint32_t>(zero_point_of(scales[key])) * 0x10001u;
    uint32_t eight, pairs[4], to[4];  // pairs[i] has the elements i and i + 4
    memcpy(&eight, __builtin_assume_aligned(raw + (key * parts + part) * 4, 4), sizeof eight);
#pragma unroll
    for (int j = 0; j < 4; ++j) pairs[j] = pair_of_levels(P{}, eight >> (j * 4) & 0x000f000fu, zeros);
    in_order(pairs, to);
    memcpy(__builtin_assume_aligned(tile + swizzled(key, part, pitch), 16), to, sizeof to);
  }
}

// Whether an instance computes calls over uint4. kDims: as in for_each_tile (attend/mma/kernel.cuh).
template <int kDims>
constexpr bool kHasLevels = kDims == 128;

// Converts a tile as stored to the tiles of K and V. Q: the type of K in products. P: the type of V in products. K of
// uint4 is left out, because unspread_keys (attend/mma/key_rope.cuh) converts it.
template <class Q, class P, int kDims>
__device__ __forceinline__ void dequantise_tile(const MmaState& state, const MmaTile& tile, const unsigned char* raw,
                                                unsigned char* k_tile, unsigned char* v_tile) {
  constexpr bool kLatent = kDims == 0;
  const kvc_backend_layer& layer = state.call->attend.layer;
  const MmaShape& shape = state.call->shape;
  const Type stored = stored_type(layer);
  const unsigned char* const v_raw = raw + shape.cut.keys * shape.k_raw;
  if (kLatent && stored == Type::kBlockRow) {
    dequantise_ds_mla_rows(state, raw, shape.k_pitch, k_tile);
  } else if (kHasLevels<kDims> && stored == Type::kU4) {
    dequantise_level_rows<P>(state, tile.v_scale, v_raw, layer.v_head_dim, shape.v_pitch, v_tile);
  } else if (stored == Type::kE2m1) {
    dequantise_nibble_rows<Q>(state, raw, layer.head_dim, shape.k_pitch, k_tile);
    if (!kLatent) dequantise_nibble_rows<P>(state, v_raw, layer.v_head_dim, shape.v_pitch, v_tile);
  } else {
    dequantise_rows<Q>(state, stored, raw, shape.k_raw, shape.k_pitch, k_tile);
    if (!kLatent) dequantise_rows<P>(state, stored, v_raw, shape.v_raw, shape.v_pitch, v_tile);
  }
}

}  // namespace kvc::kernels::cuda

// Scores of keys on tensor cores, for q of 16 bits. A thread block scores a run of keys of one query, in tiles of 128
// keys. Each of the 8 warps has 16 keys of a tile and all heads, so sums over heads stay in the warp.
//
// A product has the keys as rows and the heads as columns. A warp loads its 16 keys to registers once, and multiplies
// them by 16 heads at a time from a tile of q in shared memory. While a tile is multiplied, the next tile of keys is
// copied. Meanwhile half of the threads find the places of the keys of the tile after the next, one key each. So a tile
// needs only one barrier.
//
// If there are several kv heads, or more than 64 query heads, a tile is computed in parts, and each part needs a
// barrier. A part has those query heads of one kv head that are in the tile of q. When the next 64 query heads are
// loaded to the tile of q, one more barrier is needed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/select/keys.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

constexpr int kTileDim = 128, kTilePitch = kTileDim * 2;  // rows of fewer dims are followed by zeros
constexpr int kTileKeys = 128, kTileHeads = 64, kHeadsOfProduct = 2 * kMmaColumns;
constexpr int kTileSteps = kTileDim / kMmaDepth;
// kTilePieces: the number of threads for each key of a tile.
constexpr int kTileThreads = kTileKeys / kMmaRows * kWarpSize, kTilePieces = kTileThreads / kTileKeys;

// How keys are copied to a tile. kPlain and kBytes need rows that are aligned to 16 bytes and have a power of two of
// dims. For kBytes, this is at least 32 dims.
enum class KeyCopy {
  kPlain,   // they are stored in the type of q, and copied 16 bytes at a time
  kBytes,   // they are stored in 8 bits. 16 bytes at a time are loaded to registers, and converted after the products
  kElement  // they are converted after the products, two elements or eight 4-bit floats at a time
};

struct TileScores {
  SeenKeys seen;
  KeyPlace places[3][kTileKeys];                // the keys of tile t are at index t % 3
  float units[2][kTileKeys];                    // the scales of the keys in each buffer
  float weights[kTileHeads + kHeadsOfProduct];  // for each row of the tile of q
};
constexpr int kTileScoresBytes = (sizeof(TileScores) + 127) / 128 * 128;
// Products read up to 16 rows beyond the last head. What they compute there is not used.
constexpr int kTileQBytes = (kTileHeads + kHeadsOfProduct) * kTilePitch, kTileBytes = kTileKeys * kTilePitch;
constexpr int kTileScoresShared = kTileScoresBytes + kTileQBytes + 2 * kTileBytes;

// A part of a tile: the keys of tile number `tile`, and the query heads [head, end).
struct TilePart {
  int32_t tile, head, end, q_begin;  // q_begin: the head in the first row of the tile of q
};

// kSums: the rule is KVC_SELECT_RELU_SUM.
template <class Q, KeyCopy kCopy, bool kSums>
struct TileScorer {
  const SelectCall& call;
  TileScores& fixed;
  unsigned char* q_tile;
  unsigned char* k_tiles;
  int32_t token, list, first, count;
  Heads heads;
  int32_t thread, warp, lane;
  PageCursor pages;
  uint32_t loaded[kCopy == KeyCopy::kBytes ? kTileDim / 16 / kTilePieces : 1]
                 [4];  // kBytes: this thread's pieces of the next tile

  __device__ __forceinline__ TilePart part_at(int32_t tile, int32_t head) const {
    const int32_t group = call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads;
    TilePart part = {tile, head, (head / group + 1) * group, head - (head - heads.begin) % kTileHeads};
    if (part.end > part.q_begin + kTileHeads) part.end = part.q_begin + kTileHeads;
    if (part.end > heads.end) part.end = heads.end;
    return part;
  }
  __device__ __forceinline__ TilePart part_after(const TilePart& part) const {
    return part.end < heads.end ? part_at(part.tile, part.end) : part_at(part.tile + 1, heads.begin);
  }
  __device__ __forceinline__ int32_t kv_head_of(const TilePart& part) const {
    return part.head / (call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads);
  }
  __device__ __forceinline__ const KeyPlace* places_of(int32_t tile) const { return fixed.places[tile % 3]; }

  // Begins to find this thread's key of a tile. Only the first half of the threads have a key.
  __device__ __forceinline__ KeyLoad begin_find_in(int32_t tile) {
    const int32_t key = tile * kTileKeys + thread;
    if (thread >= kTileKeys || key >= count) return {0, -1};
    return begin_find(call, fixed.seen, &pages, token, list, first + key);
  }
  __device__ __forceinline__ void end_find_in(int32_t tile, const KeyLoad& load) {
    if (thread < kTileKeys) fixed.places[tile % 3][thread] = end_find(call, load);
  }

  // Writes the query rows and the weights of 64 heads, from head q_begin on. Those beyond the last head become zeros.
  __device__ __forceinline__ void load_q(int32_t q_begin) {
    const kvc_backend_tensor& q = call.attend.args.q;
    const QueryPlace place = place_of(fixed.seen, token);
    for (int32_t i = thread; i < kTileHeads + kHeadsOfProduct; i += kTileThreads) {
      fixed.weights[i] = i < kTileHeads && q_begin + i < heads.end ? weight_of(call, token, q_begin + i) : 0.0f;
    }
    if (call.plain_q != 0) {
      const int32_t chunks = call.attend.layer.head_dim / 8;
      for (int32_t i = thread; i < kTileHeads * chunks; i += kTileThreads) {
        const int32_t row = i / chunks, chunk = i % chunks, head = q_begin + row;
        const int64_t at = int64_t{token} * q.token_stride + head * q.head_stride + chunk * 8;
        const bool there = head < heads.end;
        begin_copy(q_tile + swizzled(row, chunk, kTilePitch),
                   static_cast<const unsigned char*>(q.data) + (there ? at * 2 : 0), there);
      }
      close_copies();
      return;
    }
    const int32_t dims = call.attend.layer.head_dim;
#pragma unroll 1
    for (int32_t i = thread; i < kTileHeads * dims; i += kTileThreads) {
      const int32_t row = i / dims, d = i % dims, head = q_begin + row;
      const float x = head < heads.end ? attended_query(call.attend, fixed.seen.item, place, head, d) : 0.0f;
      const uint32_t bits = pack(Q{}, x, 0.0f);
      memcpy(q_tile + swizzled(row, d / 8, kTilePitch) + d % 8 * 2, &bits, 2);
    }
  }

  // Calls copy(j, key, piece) for the pieces that this thread copies in a tile. j is the number of the call. The row of
  // a key has `pieces` pieces of 16 bytes. This number is a power of two, so the thread has the same piece of each of
  // its rows.
  template <int kMost, class Copy>
  __device__ __forceinline__ void for_each_piece(int32_t pieces, Copy copy) const {
    const int32_t keys_on = kTileThreads / pieces, piece = thread & (pieces - 1);
    int32_t key = thread / pieces;
#pragma unroll
    for (int j = 0; j < kMost; ++j) {
      if (j * kTilePieces >= pieces) break;  // each thread has `pieces` / 2 pieces
      copy(j, key, piece);
      key += keys_on;
    }
  }

  // Starts to copy the keys of a part to a buffer (kPlain), or to registers (kBytes). Does nothing with kElement.
  __device__ __forceinline__ void begin_keys(const TilePart& part, unsigned char* buffer) {
    const kvc_backend_layer& layer = call.attend.layer;
    const KeyPlace* const places = places_of(part.tile);
    const int32_t kv_head = kv_head_of(part);
    if constexpr (kCopy == KeyCopy::kPlain) {
      // The numbers of a thread's keys differ by multiples of 8. So their places in the swizzled tile differ by whole
      // rows.
      const int32_t pieces = layer.head_dim / 8, own = thread / pieces;
      const unsigned char* const source =
          static_cast<const unsigned char*>(layer.k.data) + kv_head * layer.k.head_stride_bytes + thread % pieces * 16;
      unsigned char* const target = buffer + swizzled(own, thread % pieces, kTilePitch);
      for_each_piece<kTileDim / 8 / kTilePieces>(pieces, [&](int, int32_t key, int32_t) {
        const KeyPlace place = places[key];
        begin_copy(target + (key - own) * kTilePitch, source + place.row, place.slot >= 0);
      });
      close_copies();
    }
    if constexpr (kCopy == KeyCopy::kBytes) {
      for_each_piece<kTileDim / 16 / kTilePieces>(layer.head_dim / 16, [&](int j, int32_t key, int32_t piece) {
#pragma unroll
        for (uint32_t& word : loaded[j]) word = 0;
        if (places[key].slot < 0) return;
        memcpy(loaded[j], __builtin_assume_aligned(key_row(layer, places[key], kv_head) + piece * 16, 16), 16);
      });
    }
  }

  // Converts eight 4-bit floats from dim d on, times the scale of their block.
  __device__ __forceinline__ void dequantise_key_nibbles(uint32_t eight, bool blocks, const unsigned char* scales,
                                                         int32_t d, uint32_t (&to)[4]) const {
    constexpr uint32_t kOne = 0x38u;  // 1 as float8_e4m3fn
    if (!blocks) {
      dequantise_nibbles(Q{}, eight, scales[d / kernels::kBlockDims], to);
    } else if (call.block.scale_type == ScaleType::kE4m3) {
      dequantise_nibbles(Q{}, eight, scales[byte_of_block(call.block, d >> call.block.scale_shift)], to);
    } else {
      dequantise_nibbles(Q{}, eight, kOne, to);
      const float scale = scale_of_dim(call.block, scales, d);
      const uint32_t factor = pack(Q{}, scale, scale);
#pragma unroll
      for (uint32_t& pair : to) pair = multiply_add(Q{}, pair, factor, 0x80008000u);
    }
  }

  // Converts the keys of a part, and writes them to the buffer (kBytes, kElement). Does nothing with kPlain, whose
  // copies arrive later (wait_copies).
  __device__ __forceinline__ void end_keys(const TilePart& part, unsigned char* buffer) {
    const kvc_backend_layer& layer = call.attend.layer;
    const KeyPlace* const places = places_of(part.tile);
    const Type stored = has_block_rows(layer.format) ? call.block.element : stored_type(layer);
    if constexpr (kCopy == KeyCopy::kBytes) {
      for_each_piece<kTileDim / 16 / kTilePieces>(layer.head_dim / 16, [&](int j, int32_t key, int32_t piece) {
        const uint32_t from[2][2] = {{loaded[j][0], loaded[j][1]}, {loaded[j][2], loaded[j][3]}};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t to[4];
          const bool has_odd = (odd_bytes(stored, from[half][0]) | odd_bytes(stored, from[half][1])) != 0;
          dequantise_eight(Q{}, stored, from[half], has_odd, to);
          memcpy(__builtin_assume_aligned(buffer + swizzled(key, piece * 2 + half, kTilePitch), 16), to, sizeof to);
        }
      });
    }
    if constexpr (kCopy == KeyCopy::kElement) {
      const int32_t chunks = layer.head_dim / 8;
      const bool nibbles = stored == Type::kE2m1 && call.has_words != 0, blocks = has_block_rows(layer.format);
#pragma unroll 2
      for (int32_t i = thread; i < kTileKeys * chunks; i += kTileThreads) {
        const int32_t key = i / chunks, piece = i % chunks, kv_head = kv_head_of(part);
        uint32_t to[4] = {};
        const unsigned char* const row = key_row(layer, places[key], kv_head);
        const unsigned char* const scales =
            blocks ? key_scales(call, row, places[key], kv_head) : row + block_scales_at(layer, layer.head_dim);
        if (places[key].slot >= 0 && nibbles) {
          uint32_t eight;
          memcpy(&eight, __builtin_assume_aligned(row + piece * 4, 4), sizeof eight);
          dequantise_key_nibbles(eight, blocks, scales, piece * 8, to);
        } else if (places[key].slot >= 0) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int32_t d = piece * 8 + j * 2;
            to[j] = pack(Q{}, key_element(call, row, scales, 0.0f, d), key_element(call, row, scales, 0.0f, d + 1));
          }
        }
        memcpy(__builtin_assume_aligned(buffer + swizzled(key, piece, kTilePitch), 16), to, sizeof to);
      }
    }
  }

  // A lane has two rows of a product: row lane / 4 (half = 0) and row lane / 4 + 8 (half = 1). Returns the key in such
  // a row.
  __device__ __forceinline__ int32_t key_of(int half) const { return warp * kMmaRows + half * 8 + lane / 4; }

  // orders: those of the list, from the block's first key on.
  __device__ __forceinline__ void write(uint32_t* orders, const TilePart& part, int32_t key, float score) const {
    const int32_t at = part.tile * kTileKeys + key;
    if (at < count) orders[at] = places_of(part.tile)[key].slot >= 0 ? order_of(score) : kAbsentOrder;
  }

  // Multiplies a part. With kSums, adds the terms of all its heads to the sums in `total`. Otherwise writes the scores
  // of each head.
  __device__ __forceinline__ void multiply_part(const TilePart& part, const unsigned char* k_tile, const float* units,
                                                float (&total)[2]) const {
    uint32_t a[kTileSteps][4];
#pragma unroll
    for (int step = 0; step < kTileSteps; ++step) {
      load_matrices(a[step], k_tile + swizzled(warp * kMmaRows + lane % 16, step * 2 + lane / 16, kTilePitch));
    }
    const float unit[2] = {units[key_of(0)], units[key_of(1)]};
    for (int32_t head = part.head; head < part.end; head += kHeadsOfProduct) {
      const int32_t row = head - part.q_begin;
      float s[2][4] = {};
#pragma unroll
      for (int step = 0; step < kTileSteps; ++step) {
        uint32_t b[4];
        load_matrices(b, q_tile + swizzled(row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2, kTilePitch));
        multiply(Q{}, s[0], a[step], b[0], b[1]);
        multiply(Q{}, s[1], a[step], b[2], b[3]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t column = i / 2 * kMmaColumns + lane % 4 * 2 + i % 2;
        const bool there = head + column < part.end;
        const float weight = kSums ? fixed.weights[row + column] : 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float dot = s[i / 2][half * 2 + i % 2] * unit[half];
          if constexpr (kSums) {
            if (there) total[half] = fmaf(weight, fmaxf(dot, 0.0f), total[half]);
          } else {
            if (there) write(orders_of(call, token, head + column) + first, part, key_of(half), dot);
          }
        }
      }
    }
  }

  // Writes the sums over all heads of a tile. Four neighbouring lanes have the same keys, and a fourth of the heads
  // each.
  __device__ __forceinline__ void write_sums(uint32_t* sums, const TilePart& part, float (&total)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float x = total[half];
      x += __shfl_xor_sync(kAllLanes, x, 1);
      x += __shfl_xor_sync(kAllLanes, x, 2);
      if (lane % 4 == half) write(sums, part, key_of(half), x);
      total[half] = 0.0f;
    }
  }

  __device__ __forceinline__ void score() {
    const int32_t tiles = (count + kTileKeys - 1) / kTileKeys;
    pages = page_cursor(&call.attend.plan.arrays.tables, fixed.seen.item.row);
    __syncthreads();  // all threads have finished the previous list
    for (int32_t tile = 0; tile < 2; ++tile) end_find_in(tile, begin_find_in(tile));
    __syncthreads();
    TilePart part = part_at(0, heads.begin);
    begin_keys(part, k_tiles);
    if (thread < kTileKeys) fixed.units[0][thread] = unit_of_mine(part);
    end_keys(part, k_tiles);
    float total[2] = {};
    uint32_t* const sums = orders_of(call, token, 0) + first;
    int32_t q_loaded = -1;
    for (int32_t buffer = 0; part.tile < tiles; buffer ^= 1) {
      wait_copies<0>();
      __syncthreads();  // the part's keys are there, and the other buffer is free
      if (part.q_begin != q_loaded) {
        load_q(part.q_begin);
        q_loaded = part.q_begin;
        wait_copies<0>();
        __syncthreads();
      }
      const TilePart next = part_after(part);
      unsigned char* const next_keys = k_tiles + (buffer ^ 1) * kTileBytes;
      const bool more = next.tile < tiles, tile_begins = part.head == heads.begin;
      float unit = 0.0f;
      KeyLoad load = {0, -1};
      if (more) {
        begin_keys(next, next_keys);
        if (thread < kTileKeys) unit = unit_of_mine(next);
      }
      if (tile_begins) load = begin_find_in(part.tile + 2);
      multiply_part(part, k_tiles + buffer * kTileBytes, fixed.units[buffer], total);
      if (kSums && next.tile != part.tile) write_sums(sums, part, total);
      if (tile_begins) end_find_in(part.tile + 2, load);
      if (more) {
        if (thread < kTileKeys) fixed.units[buffer ^ 1][thread] = unit;
        end_keys(next, next_keys);
      }
      part = next;
    }
  }

  // Returns the scale of this thread's key of a part.
  __device__ __forceinline__ float unit_of_mine(const TilePart& part) const {
    const KeyPlace& place = places_of(part.tile)[thread];
    return place.slot >= 0 ? unit_of(call, place, kv_head_of(part)) : 1.0f;
  }
};

// The second launch bound lets a thread use as many registers as two blocks on a multiprocessor allow, because shared
// memory has room for at most two blocks.
template <class Q, KeyCopy kCopy, bool kSums>
__global__ void __launch_bounds__(kTileThreads, 2) tile_score_kernel(const __grid_constant__ SelectCall call) {
  TileScores& fixed = *reinterpret_cast<TileScores*>(shared_bytes());
  unsigned char* const tiles = shared_bytes() + kTileScoresBytes;
  const int32_t token = call.token_begin + static_cast<int32_t>(blockIdx.y), thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) find_seen_keys(call.attend, token, 0, &fixed.seen);
  const int32_t zeros = call.attend.layer.head_dim < kTileDim ? kTileQBytes + 2 * kTileBytes : 0;
  for (int32_t at = thread * 16; at < zeros; at += kTileThreads * 16) {  // the dims from head_dim on stay zeros
    memset(__builtin_assume_aligned(tiles + at, 16), 0, 16);
  }
  __syncthreads();
  for_each_list(call, fixed.seen, token, call.block_keys, [&](int32_t list, Heads heads, int32_t first, int32_t count) {
    TileScorer<Q, kCopy, kSums> scorer = {call,
                                          fixed,
                                          tiles,
                                          tiles + kTileQBytes,
                                          token,
                                          list,
                                          first,
                                          count,
                                          heads,
                                          thread,
                                          thread / kWarpSize,
                                          thread % kWarpSize,
                                          {},
                                          {}};
    scorer.score();
  });
}

}  // namespace kvc::kernels::cuda

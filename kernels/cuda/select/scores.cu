// The first kernel of select: computes scores of keys. A thread block scores 256 keys of one query.
//
// If q has 16 bits and keys are not uint4, 64 keys at a time are copied to shared memory, and tensor cores multiply
// them. Each of the 4 warps has 16 of these keys and all heads, so sums over heads stay in the warp. Otherwise each
// thread has two keys, and CUDA cores multiply. Each score is written as an order (call.cuh).
//
// Roofline: arithmetic rate with many heads; otherwise memory bandwidth, with one read of the keys for each query.
// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "kernels/common/page_walk.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/select/call.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kScoreThreads = 128, kChunkKeys = 256, kTileKeys = 64, kTileRows = 64, kMaxTileDim = 128;
static_assert(kScoreThreads / kWarpSize * 16 == kTileKeys && kTileRows % kMmaRows == 0);

struct ScoreFixed {
  SeenKeys seen;
  int64_t row[kChunkKeys];  // byte offset of the key's row in the pool, for head 0
  int64_t page[kChunkKeys];
  int32_t slot[kChunkKeys];  // -1: the query does not see the key
};

// Finds `count` keys of the chunk, which begins at key `first` of the list. All threads of the block call it. It ends
// with a barrier.
__device__ __forceinline__ void find_chunk(const SelectCall& call, int32_t token, int32_t list, int32_t first,
                                           int32_t count, ScoreFixed* fixed) {
  const kvc_backend_layer& layer = call.attend.layer;
  const SeenKeys& seen = fixed->seen;
  PageCursor cursor = page_cursor(&call.attend.plan.arrays.tables, seen.item.row);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kChunkKeys; i += kScoreThreads) {
    fixed->slot[i] = -1;
    if (i >= count) continue;
    int64_t page = 0, slot = 0;
    if (has_lists(call.attend)) {
      const ListedKeys& listed = call.attend.listed;
      const uint32_t at = listed.slots[list_of(listed, 0, token, list) * listed.most + first + i];
      page = at / static_cast<uint32_t>(layer.page_size);
      slot = at % static_cast<uint32_t>(layer.page_size);
    } else {
      const int32_t key = seen.keys.begin + first + i;
      if (key >= seen.tree.begin && !sees_node(&seen.tree, &seen.mask, key)) continue;
      page = page_at(&cursor, key / layer.page_size);
      slot = key % layer.page_size;
    }
    fixed->page[i] = page;
    fixed->slot[i] = static_cast<int32_t>(slot);
    fixed->row[i] = page * layer.k.page_stride_bytes + slot * layer.k.slot_stride_bytes;
  }
  __syncthreads();
}

// Element d of a stored key, without the scale of its row or head. zero: the zero point of a row of uint4.
__device__ __forceinline__ float key_element(const kvc_backend_layer& layer, const unsigned char* row, float zero,
                                             int32_t d) {
  const Type stored = stored_type(layer);
  const float x = load_element(stored, row, d);
  if (stored != Type::kE2m1) return x - zero;
  return x * block_scale(row[block_scales_at(layer, layer.head_dim) + d / kernels::kBlockDims]);
}

// The factor by which a dot product with a stored key is multiplied: the scale of the key.
__device__ __forceinline__ float unit_of(const SelectCall& call, const ScoreFixed& fixed, int32_t key, int32_t head) {
  const kvc_backend_layer& layer = call.attend.layer;
  if (!has_token_scales(&layer.k_scales)) return head_scale(&layer.k_scales, head);
  const float scale = *token_scale(&layer.k_scales, fixed.page[key], head, fixed.slot[key]);
  return has_rotated_rows(layer.format) ? without_zero_point(scale) : scale;
}

__device__ __forceinline__ float weight_of(const SelectCall& call, int32_t token, int32_t head) {
  const kvc_backend_select& select = call.select;
  if (select.weights == nullptr) return 1.0f;
  return select.weights[token * select.weights_token_stride + head * select.weights_head_stride];
}

__device__ __forceinline__ QueryPlace place_of(const ScoreFixed& fixed, int32_t token) {
  QueryPlace place = {};
  place.row = fixed.seen.item.row;
  place.query = fixed.seen.query;
  place.token = token;
  return place;
}

// The query heads [begin, end) that score a list: all heads, or the head of the list.
struct Heads {
  int32_t begin, end;
};

// Scores the chunk on the CUDA cores. A thread has keys `thread` and `thread` + 128. q: [head_dim], in shared memory.
__device__ __forceinline__ void score_simply(const SelectCall& call, int32_t token, Heads heads, int32_t first,
                                             int32_t count, const ScoreFixed& fixed, float* q) {
  const kvc_backend_layer& layer = call.attend.layer;
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const int32_t group = layer.num_q_heads / layer.num_kv_heads, thread = static_cast<int32_t>(threadIdx.x);
  const int32_t block = rotation_block(layer, layer.head_dim);
  constexpr int kEach = kChunkKeys / kScoreThreads;
  float total[kEach] = {};
  for (int32_t head = heads.begin; head < heads.end; ++head) {
    for (int32_t d = thread; d < layer.head_dim; d += kScoreThreads) {
      q[d] = attended_query(call.attend, fixed.seen.item, place_of(fixed, token), head, d);
    }
    __syncthreads();
    if (block > 0) {  // keys are stored rotated
      if (thread < kWarpSize) spread_by_warp(q, layer.head_dim, block, thread);
      __syncthreads();
    }
    const float weight = sums ? weight_of(call, token, head) : 1.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t key = thread + i * kScoreThreads;
      if (key >= count || fixed.slot[key] < 0) continue;
      const unsigned char* const k =
          static_cast<const unsigned char*>(layer.k.data) + fixed.row[key] + head / group * layer.k.head_stride_bytes;
      float zero = 0.0f, dot = 0.0f;
      if (block > 0) {
        zero = static_cast<float>(
            zero_point_of(*token_scale(&layer.k_scales, fixed.page[key], head / group, fixed.slot[key])));
      }
      for (int32_t d = 0; d < layer.head_dim; ++d) dot = fmaf(q[d], key_element(layer, k, zero, d), dot);
      dot *= unit_of(call, fixed, key, head / group);
      if (block > 0) dot /= static_cast<float>(block);
      if (sums) {
        total[i] = fmaf(weight, fmaxf(dot, 0.0f), total[i]);
      } else {
        orders_of(call, token, head)[first + key] = order_of(dot);
      }
    }
    __syncthreads();
  }
  if (!sums) return;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int32_t key = thread + i * kScoreThreads;
    if (key < count && fixed.slot[key] >= 0) orders_of(call, token, 0)[first + key] = order_of(total[i]);
  }
}

// Writes the query rows of `heads` to a swizzled tile of kTileRows rows of `pitch` bytes. Rows beyond the last head are
// zeros.
template <class Q>
__device__ __forceinline__ void load_q(const SelectCall& call, int32_t token, Heads heads, const ScoreFixed& fixed,
                                       int32_t pitch, unsigned char* tile) {
  const int32_t pairs = call.attend.layer.head_dim / 2;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kTileRows * pairs; i += kScoreThreads) {
    const int32_t row = i / pairs, d = i % pairs * 2;
    float x[2] = {};
    if (heads.begin + row < heads.end) {
      const QueryPlace place = place_of(fixed, token);
      x[0] = attended_query(call.attend, fixed.seen.item, place, heads.begin + row, d);
      x[1] = attended_query(call.attend, fixed.seen.item, place, heads.begin + row, d + 1);
    }
    const uint32_t pair = pack(Q{}, x[0], x[1]);
    memcpy(tile + swizzled(row, d / 8, pitch) + d % 8 * 2, &pair, sizeof pair);
  }
}

// Writes the rows of kTileKeys keys, from key `key0` of the chunk on, to a swizzled tile. Rows of keys that the query
// does not see are zeros.
template <class Q>
__device__ __forceinline__ void load_keys(const SelectCall& call, int32_t kv_head, int32_t key0,
                                          const ScoreFixed& fixed, int32_t pitch, unsigned char* tile) {
  const kvc_backend_layer& layer = call.attend.layer;
  const Type stored = stored_type(layer);
  const int32_t chunks = layer.head_dim / 8;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < kTileKeys * chunks; i += kScoreThreads) {
    const int32_t key = i / chunks, chunk = i % chunks;
    const bool there = fixed.slot[key0 + key] >= 0;
    const unsigned char* const row = static_cast<const unsigned char*>(layer.k.data) +
                                     (there ? fixed.row[key0 + key] + kv_head * layer.k.head_stride_bytes : 0);
    unsigned char* const to = tile + swizzled(key, chunk, pitch);
    if (!is_quantised(stored)) {
      begin_copy(to, row + (there ? chunk * 16 : 0), there);
      continue;
    }
    uint32_t words[4];
#pragma unroll
    for (int32_t j = 0; j < 4; ++j) {
      const int32_t d = chunk * 8 + j * 2;
      words[j] = there ? pack(Q{}, key_element(layer, row, 0.0f, d), key_element(layer, row, 0.0f, d + 1)) : 0;
    }
    memcpy(__builtin_assume_aligned(to, 16), words, sizeof words);
  }
  close_copies();
  wait_copies<0>();
}

// Scores the chunk on tensor cores. tiles: a tile of q, then a tile of keys, of 64 rows of `pitch` bytes each.
template <class Q>
__device__ __forceinline__ void score_by_tiles(const SelectCall& call, int32_t token, Heads heads, int32_t first,
                                               int32_t count, const ScoreFixed& fixed, unsigned char* tiles) {
  const kvc_backend_layer& layer = call.attend.layer;
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const int32_t group = layer.num_q_heads / layer.num_kv_heads, pitch = (layer.head_dim + 63) / 64 * 128;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize,
                key_row = static_cast<int32_t>(threadIdx.x) / kWarpSize * 16;
  unsigned char* const k_tile = tiles + kTileRows * pitch;
  int32_t q_begin = -1, kv_loaded = -1;
  for (int32_t key0 = 0; key0 < count; key0 += kTileKeys) {
    float total[2][2] = {};  // scores of keys key_row + i * 8 + lane % 4 * 2 + j
    kv_loaded = -1;
    for (int32_t head = heads.begin; head < heads.end;) {
      const int32_t kv_head = head / group;
      int32_t end = (kv_head + 1) * group;
      if (end > heads.end) end = heads.end;
      if (end > head + kTileRows) end = head + kTileRows;
      __syncthreads();  // all threads have finished reading the tiles
      if (q_begin != head) load_q<Q>(call, token, {head, end}, fixed, pitch, tiles);
      if (kv_loaded != kv_head) load_keys<Q>(call, kv_head, key0, fixed, pitch, k_tile);
      q_begin = head;
      kv_loaded = kv_head;
      __syncthreads();
      float units[2][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t key = key0 + key_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
        units[i / 2][i % 2] = fixed.slot[key] >= 0 ? unit_of(call, fixed, key, kv_head) : 1.0f;
      }
      for (int32_t row0 = 0; row0 < end - head; row0 += kMmaRows) {
        float s[2][4] = {};
#pragma unroll 2
        for (int32_t step = 0; step < layer.head_dim / kMmaDepth; ++step) {
          uint32_t a[4], b[4];
          load_matrices(a, tiles + swizzled(row0 + lane % 16, step * 2 + lane / 16, pitch));
          load_matrices(b, k_tile + swizzled(key_row + lane / 16 * 8 + lane % 8, step * 2 + lane / 8 % 2, pitch));
          multiply(Q{}, s[0], a, b[0], b[1]);
          multiply(Q{}, s[1], a, b[2], b[3]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t of_row = head + row0 + lane / 4 + half * 8;
          if (of_row >= end) continue;
          const float weight = sums ? weight_of(call, token, of_row) : 1.0f;
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float dot = s[i / 2][half * 2 + i % 2] * units[i / 2][i % 2];
            if (sums) {
              total[i / 2][i % 2] = fmaf(weight, fmaxf(dot, 0.0f), total[i / 2][i % 2]);
              continue;
            }
            const int32_t key = key0 + key_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (key < count && fixed.slot[key] >= 0) orders_of(call, token, of_row)[first + key] = order_of(dot);
          }
        }
      }
      head = end;
    }
    if (!sums) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& x = total[i / 2][i % 2];
#pragma unroll
      for (int lanes = 4; lanes < kWarpSize; lanes *= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
      const int32_t key = key0 + key_row + i / 2 * 8 + lane % 4 * 2 + i % 2;
      if (lane / 4 == 0 && key < count && fixed.slot[key] >= 0) orders_of(call, token, 0)[first + key] = order_of(x);
    }
  }
}

// Q: the type of q in the products; float means no tensor cores. The second launch bound lets a thread use as many
// registers as four blocks on a multiprocessor allow. Without this bound, ptxas plans for more blocks on some GPUs, and
// spills registers.
template <class Q>
__global__ void __launch_bounds__(kScoreThreads, 4) score_kernel(const __grid_constant__ SelectCall call) {
  ScoreFixed& fixed = *reinterpret_cast<ScoreFixed*>(shared_bytes());
  unsigned char* const tiles = shared_bytes() + (sizeof(ScoreFixed) + 127) / 128 * 128;
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const int32_t token = call.token_begin + static_cast<int32_t>(blockIdx.y),
                first = static_cast<int32_t>(blockIdx.x) * kChunkKeys;
  const int32_t heads = call.attend.layer.num_q_heads;
  if (threadIdx.x == 0) find_seen_keys(call.attend, token, 0, &fixed.seen);
  __syncthreads();
  // Lists that share their candidates, and lists without candidates, are scored together.
  const bool apart = !sums && has_lists(call.attend) && call.attend.listed.heads > 1;
  for (int32_t list = call.list_begin; list < call.list_end; list = apart ? list + 1 : call.list_end) {
    const int32_t left = keys_of(call, fixed.seen, token, list) - first, count = left < kChunkKeys ? left : kChunkKeys;
    if (count <= 0) continue;
    const Heads of_list = sums    ? Heads{0, heads}
                          : apart ? Heads{list, list + 1}
                                  : Heads{call.list_begin, call.list_end};
    __syncthreads();
    find_chunk(call, token, list, first, count, &fixed);
    for (int32_t l = sums ? 0 : of_list.begin; l < (sums ? 1 : of_list.end); ++l) {
      for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kScoreThreads) {
        if (fixed.slot[i] < 0) orders_of(call, token, l)[first + i] = kAbsentOrder;
      }
    }
    if constexpr (std::is_same_v<Q, float>) {
      score_simply(call, token, of_list, first, count, fixed, reinterpret_cast<float*>(tiles));
    } else {
      score_by_tiles<Q>(call, token, of_list, first, count, fixed, tiles);
    }
  }
}

bool by_tensor_cores(const Device& device, const kvc_backend_select& args) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = stored_type(layer);
  const int64_t strides = layer.k.page_stride_bytes | layer.k.head_stride_bytes | layer.k.slot_stride_bytes;
  const bool aligned = (static_cast<uint64_t>(strides) | reinterpret_cast<uintptr_t>(layer.k.data)) % 16 == 0;
  return !device.simple && !has_rotated_rows(layer.format) && (q == Type::kF16 || q == Type::kBf16) &&
         (stored == q || is_quantised(stored)) && layer.head_dim % 16 == 0 && layer.head_dim <= kMaxTileDim &&
         (is_quantised(stored) || aligned);
}

}  // namespace

kvc_status launch_scores(const Device& device, const SelectCall& call, int32_t queries, int64_t most, void* stream,
                         kvc_error* error) {
  const kvc_backend_layer& layer = call.attend.layer;
  const dim3 grid = {blocks_for(most, kChunkKeys), static_cast<unsigned>(queries), 1};
  const bool tiles = by_tensor_cores(device, call.select);
  const int64_t pitch = (layer.head_dim + 63) / 64 * 128, fixed = (sizeof(ScoreFixed) + 127) / 128 * 128;
  const int64_t shared = fixed + (tiles ? (kTileRows + kTileKeys) * pitch : layer.head_dim * 4);
  const auto kernel = !tiles                                       ? score_kernel<float>
                      : type_of(call.select.q.dtype) == Type::kF16 ? score_kernel<F16>
                                                                   : score_kernel<Bf16>;
  return launch("scores of keys", stream, grid, kScoreThreads, static_cast<size_t>(shared), error, kernel, call);
}

}  // namespace kvc::kernels::cuda

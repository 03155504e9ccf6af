// The first kernel of select: computes scores of keys, and writes each score as an order (call.cuh). Tensor cores
// multiply (tile_scores.cuh) if q has 16 bits and the other conditions of by_tensor_cores are true. Otherwise CUDA
// cores multiply: a thread block scores 256 keys of one query, and each thread has two keys.
//
// Roofline: memory bandwidth, with one read of the keys for each query; arithmetic rate with many heads.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/convert.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/select/keys.cuh"
#include "kernels/cuda/select/tile_scores.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kSimpleThreads = 128, kKeysOfThread = 2, kSimpleKeys = kKeysOfThread * kSimpleThreads;

struct SimpleScores {
  SeenKeys seen;
  KeyPlace places[kSimpleKeys];
};
constexpr int kSimpleScoresBytes = (sizeof(SimpleScores) + 15) / 16 * 16;

// A thread has the keys `thread` and `thread` + 128. q: [head_dim], in shared memory.
__device__ __forceinline__ void score_simply(const SelectCall& call, int32_t token, Heads heads, int32_t first,
                                             int32_t count, const SimpleScores& fixed, float* q) {
  const kvc_backend_layer& layer = call.attend.layer;
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const int32_t group = layer.num_q_heads / layer.num_kv_heads, thread = static_cast<int32_t>(threadIdx.x);
  const int32_t block = rotation_block(layer, layer.head_dim);
  float total[kKeysOfThread] = {};
  for (int32_t head = heads.begin; head < heads.end; ++head) {
    for (int32_t d = thread; d < layer.head_dim; d += kSimpleThreads) {
      q[d] = attended_query(call.attend, fixed.seen.item, place_of(fixed.seen, token), head, d);
    }
    __syncthreads();
    if (block > 0) {  // keys are stored rotated
      if (thread < kWarpSize) spread_by_warp(q, layer.head_dim, block, thread);
      __syncthreads();
    }
    const float weight = sums ? weight_of(call, token, head) : 1.0f;
#pragma unroll
    for (int i = 0; i < kKeysOfThread; ++i) {
      const int32_t key = thread + i * kSimpleThreads;
      const KeyPlace& place = fixed.places[key];
      if (key >= count || place.slot < 0) continue;
      const unsigned char* const k = key_row(layer, place, head / group);
      float zero = 0.0f, dot = 0.0f;
      if (block > 0) {
        zero = static_cast<float>(zero_point_of(*token_scale(&layer.k_scales, place.page, head / group, place.slot)));
      }
      const unsigned char* const scales =
          has_block_rows(layer.format) ? key_scales(call, k, place, head / group) : nullptr;
      for (int32_t d = 0; d < layer.head_dim; ++d) dot = fmaf(q[d], key_element(call, k, scales, zero, d), dot);
      dot *= unit_of(call, place, head / group);
      if (block > 0) dot /= static_cast<float>(block);
      if (sums) {
        total[i] = fmaf(weight, fmaxf(dot, 0.0f), total[i]);
      } else {
        orders_of(call, token, head)[first + key] = order_of(dot);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    const int32_t key = thread + i * kSimpleThreads;
    if (key >= count) continue;
    const bool seen = fixed.places[key].slot >= 0;
    if (sums) {
      orders_of(call, token, 0)[first + key] = seen ? order_of(total[i]) : kAbsentOrder;
    } else if (!seen) {
      for (int32_t head = heads.begin; head < heads.end; ++head)
        orders_of(call, token, head)[first + key] = kAbsentOrder;
    }
  }
}

// The second launch bound lets a thread use as many registers as four blocks on a multiprocessor allow. Without this
// bound, ptxas plans for more blocks on some GPUs, and spills registers.
__global__ void __launch_bounds__(kSimpleThreads, 4) simple_score_kernel(const __grid_constant__ SelectCall call) {
  SimpleScores& fixed = *reinterpret_cast<SimpleScores*>(shared_bytes());
  float* const q = reinterpret_cast<float*>(shared_bytes() + kSimpleScoresBytes);
  const int32_t token = call.token_begin + static_cast<int32_t>(blockIdx.y), thread = static_cast<int32_t>(threadIdx.x);
  if (thread == 0) find_seen_keys(call.attend, token, 0, &fixed.seen);
  __syncthreads();
  for_each_list(call, fixed.seen, token, kSimpleKeys, [&](int32_t list, Heads heads, int32_t first, int32_t count) {
    __syncthreads();  // all threads have finished the previous list
    PageCursor pages = page_cursor(&call.attend.plan.arrays.tables, fixed.seen.item.row);
    for (int32_t i = thread; i < count; i += kSimpleThreads) {
      fixed.places[i] = end_find(call, begin_find(call, fixed.seen, &pages, token, list, first + i));
    }
    __syncthreads();
    score_simply(call, token, heads, first, count, fixed, q);
  });
}

bool is_aligned(const kvc_backend_layer& layer, uint64_t bytes) {
  const int64_t strides = layer.k.page_stride_bytes | layer.k.head_stride_bytes | layer.k.slot_stride_bytes;
  return (static_cast<uint64_t>(strides) | reinterpret_cast<uintptr_t>(layer.k.data)) % bytes == 0;
}

// Returns the type of a key's elements. In block rows, this is the type of the elements in blocks.
Type element_type(const kvc_backend_layer& layer) {
  return has_block_rows(layer.format) ? block_row(layer).element : stored_type(layer);
}

bool has_one_scale(const kvc_backend_layer& layer) {
  return has_block_rows(layer.format) && block_row(layer).count == 1 && block_row(layer).block_dims == kEveryDim;
}

// Whether the type of q represents each element of a block row times its scale exactly. Also true if scores, instead of
// elements, are multiplied by the scale. Scales that are powers of two may be too large for float16, and float32 scales
// have too many bits.
bool are_scales_exact(const kvc_backend_layer& layer, Type q) {
  if (!has_block_rows(layer.format) || has_one_scale(layer)) return true;
  const BlockRow block = block_row(layer);
  return block.block_dims == kEveryDim &&
         (block.scale_type == ScaleType::kE4m3 || (block.scale_type == ScaleType::kE8m0 && q == Type::kBf16));
}

// Returns whether tensor cores can multiply the keys. Sets *copy to the way in which the keys are then copied to tiles.
bool by_tensor_cores(const Device& device, const kvc_backend_select& args, KeyCopy* copy) {
  const kvc_backend_layer& layer = *args.layer;
  const Type q = type_of(args.q.dtype), stored = element_type(layer);
  const bool in_pieces = is_aligned(layer, 16) && (layer.head_dim & (layer.head_dim - 1)) == 0;
  *copy = !in_pieces    ? KeyCopy::kElement
          : stored == q ? KeyCopy::kPlain
          : element_bits(stored) == 8 && layer.head_dim >= 32 && (!has_block_rows(layer.format) || has_one_scale(layer))
              ? KeyCopy::kBytes
              : KeyCopy::kElement;
  return !device.simple && !has_rotated_rows(layer.format) && (q == Type::kF16 || q == Type::kBf16) &&
         (stored == q || is_quantised(stored)) && are_scales_exact(layer, q) && layer.head_dim % 16 == 0 &&
         layer.head_dim <= kTileDim && kTileScoresShared <= device.shared_of_block;
}

using ScoreKernel = void (*)(SelectCall);

template <class Q, KeyCopy kCopy>
ScoreKernel tile_kernel_of(bool sums) {
  return sums ? tile_score_kernel<Q, kCopy, true> : tile_score_kernel<Q, kCopy, false>;
}

template <class Q>
ScoreKernel tile_kernel_of(KeyCopy copy, bool sums) {
  return copy == KeyCopy::kPlain   ? tile_kernel_of<Q, KeyCopy::kPlain>(sums)
         : copy == KeyCopy::kBytes ? tile_kernel_of<Q, KeyCopy::kBytes>(sums)
                                   : tile_kernel_of<Q, KeyCopy::kElement>(sums);
}

// Whether q can be copied unchanged, 16 aligned bytes at a time.
bool is_plain(const kvc_backend_select& args) {
  return args.cos_sin == nullptr && (args.q.token_stride | args.q.head_stride) % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.q.data) % 16 == 0;
}

// Returns the number of thread blocks for each query with which the kernel needs the least time, if `resident` blocks
// run at once. tiles: the number of tiles of a query.
int64_t blocks_of_query(int64_t queries, int64_t tiles, int64_t resident) {
  constexpr int64_t kBeginTiles = 4;  // the time to begin a block, in tiles
  int64_t best = 1, least = INT64_MAX;
  for (int64_t blocks = 1; blocks <= tiles && blocks <= resident; ++blocks) {
    const int64_t waves = (queries * blocks + resident - 1) / resident;
    const int64_t time = waves * ((tiles + blocks - 1) / blocks + kBeginTiles);
    if (time < least) {
      least = time;
      best = blocks;
    }
  }
  return best;
}

}  // namespace

kvc_status launch_scores(const Device& device, const SelectCall& select, int32_t queries, int64_t most, void* stream,
                         kvc_error* error) {
  SelectCall call = select;
  if (has_block_rows(call.attend.layer.format)) call.block = block_row(call.attend.layer);
  call.has_one_scale = has_one_scale(call.attend.layer) ? 1 : 0;
  KeyCopy copy = KeyCopy::kElement;
  if (!by_tensor_cores(device, call.select, &copy)) {
    const dim3 grid = {blocks_for(most, kSimpleKeys), static_cast<unsigned>(queries), 1};
    const int64_t shared = kSimpleScoresBytes + call.attend.layer.head_dim * static_cast<int64_t>(sizeof(float));
    return launch("scores of keys", stream, grid, kSimpleThreads, static_cast<size_t>(shared), error,
                  simple_score_kernel, call);
  }
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const ScoreKernel kernel =
      type_of(call.select.q.dtype) == Type::kF16 ? tile_kernel_of<F16>(copy, sums) : tile_kernel_of<Bf16>(copy, sums);
  const kvc_status status = allow_shared(device, kernel, "scores of keys", error);
  if (status != KVC_OK) return status;
  const int64_t tiles = (most + kTileKeys - 1) / kTileKeys,
                at_once = device.shared_of_multiprocessor / (kTileScoresShared + 1024) > 1 ? 2 : 1;
  const int64_t blocks = blocks_of_query(queries, tiles, at_once * device.multiprocessors);
  call.block_keys = static_cast<int32_t>((tiles + blocks - 1) / blocks * kTileKeys);
  call.has_words = is_aligned(call.attend.layer, 4) ? 1 : 0;
  call.plain_q = is_plain(call.select) ? 1 : 0;
  const dim3 grid = {blocks_for(most, call.block_keys), static_cast<unsigned>(queries), 1};
  return launch("scores of keys", stream, grid, kTileThreads, kTileScoresShared, error, kernel, call);
}

}  // namespace kvc::kernels::cuda

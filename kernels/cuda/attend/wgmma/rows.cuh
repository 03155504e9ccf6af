// What a thread does with its parts of two rows, in attend/wgmma/kernel.cuh, attend/wgmma/latent.cuh and
// attend/mma/many_rows.cuh: scales, options and masks, the online softmax, and writing the finished state.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/mask.h"
#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/wgmma/layout.h"
#include "kernels/cuda/attend/wgmma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// A thread's softmax state of two rows, which are 8 apart. l: the sum over the thread's keys, or, with softmax_rows,
// over the keys of the lanes `lane` and `lane ^ 1`.
struct WgmmaSums {
  float m[2], l[2];
};

// A thread's part of its warpgroup's rows and of kColumns columns of o. The thread has the rows `first` and first + 8.
// Of each 8 columns, it has the columns lane % 4 * 2 and lane % 4 * 2 + 1 (attend/wgmma/layout.h).
template <int kColumns>
struct WgmmaRows : WgmmaSums {
  float o[kColumns / 2];
  int32_t first;
};

// Applies softcap and ALiBi to the scores of one row. begin: the first key of the tile.
template <class State, int kScores>
__device__ __forceinline__ void apply_options(const State& state, int32_t begin, int32_t row, int half,
                                              float (&s)[kScores]) {
  const AttendCall& call = state.call->attend;
  const auto& fixed = *state.fixed;
  const float cap = static_cast<float>(call.args.softcap), slope = fixed.slopes[row];
  const int32_t first_key = begin + state.lane % 4 * 2, position = fixed.masks[row].position;
  const uint32_t flags = plan_of(call)->flags;
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) {
    float& x = s[i / 2 * 4 + half * 2 + i % 2];
    float score = x * call.option_scale;
    if (call.args.softcap != 0.0) score = tanhf(score) * cap;
    if (slope != 0.0f) {
      const int32_t key = first_key + i / 2 * 8 + i % 2;
      score -= slope * alibi_distance(flags, static_cast<float>(position - key_position(&fixed.tree, key)));
    }
    x = score;
  }
}

// Sets the scores of keys that the row does not see to -inf. first: the first key of the tile.
template <class State, int kScores>
__device__ __forceinline__ void apply_mask(const State& state, int32_t first, int32_t row, int half,
                                           float (&s)[kScores]) {
  const auto& fixed = *state.fixed;
  const int32_t first_key = first + state.lane % 4 * 2;
  int32_t begin = 0, end = 0;  // the keys that the row sees, relative to first_key
  uint32_t bits = ~0u;         // a bit for each key of the thread, in order
  if (row < state.rows) {
    const QueryMask& mask = fixed.masks[row];
    begin = mask.keys.begin - first_key;
    end = mask.keys.end - first_key;
    if (first + kScores * 2 > fixed.tree.begin) {
      bits = 0;
#pragma unroll 1
      for (int i = 0; i < kScores / 2; ++i) {
        bits |= static_cast<uint32_t>(sees_key(&fixed.tree, &mask, first_key + i / 2 * 8 + i % 2) ? 1 : 0) << i;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) {
    const int32_t at = i / 2 * 8 + i % 2;
    if (at < begin || at >= end || ((bits >> i) & 1u) == 0) s[i / 2 * 4 + half * 2 + i % 2] = -INFINITY;
  }
}

// Converts dot products to scores, in the units of call.exp2_scale. begin: the first key of the tile. is_full: every
// row sees every key of the tile.
template <class State, int kScores>
__device__ __forceinline__ void score_tile(const State& state, int32_t begin, bool is_full, int32_t first_row,
                                           float (&s)[kScores]) {
  const bool has_units = state.call->has_units != 0, has_options = state.call->attend.has_options != 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = first_row + half * 8;
    if (has_units) {
      const float unit = state.fixed->units[row];
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) s[i / 2 * 4 + half * 2 + i % 2] *= unit;
    }
    if (has_options) apply_options(state, begin, row, half, s);
    if (!is_full) apply_mask(state, begin, row, half, s);
  }
}

// The largest x of the four lanes that share a row.
__device__ __forceinline__ float largest_of_quad(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}

// The largest score of a row, over its four lanes and the scores of earlier keys (`before`).
template <int kScores>
__device__ __forceinline__ float largest_of_row(const float (&s)[kScores], int half, float before) {
  float largest = before;
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) largest = fmaxf(largest, s[i / 2 * 4 + half * 2 + i % 2]);
  return largest_of_quad(largest);
}

// The online softmax of a thread's two rows. s becomes p. alpha: set to the factors of o. One instruction computes an
// exponent s * scale - origin, where `origin` is the rounded m * scale. This rounding is the same for all keys.
// rest_of_origin corrects it at the end.
template <int kScores>
__device__ __forceinline__ void softmax_rows(float scale, float (&s)[kScores], WgmmaSums& rows, float (&alpha)[2]) {
  float largest[2][2], sums[2][2] = {},
                       origin[2];  // largest, sums: two for each row, so that chains of dependent operations are short
#pragma unroll
  for (int half = 0; half < 2; ++half) largest[half][0] = largest[half][1] = rows.m[half];
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    float& x = largest[i / 2 % 2][i / 4 % 2];
    x = fmaxf(x, s[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = rows.m[half], m = largest_of_quad(fmaxf(largest[half][0], largest[half][1]));
    alpha[half] = before == m ? 1.0f : fast_exp2(before * scale - m * scale);
    origin[half] = m == -INFINITY ? 0.0f : m * scale;  // while no key was seen, every p is 0
    rows.m[half] = m;
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    s[i] = fast_exp2(fmaf(s[i], scale, -origin[i / 2 % 2]));
    sums[i / 2 % 2][i / 4 % 2] += s[i];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = sums[half][0] + sums[half][1];
    rows.l[half] = fmaf(rows.l[half], alpha[half], sum + __shfl_xor_sync(kAllLanes, sum, 1));
  }
}
// The factor that corrects a row's l and o, which are sums of 2^(s * scale - round(m * scale)). Times the factor, they
// are relative to the exact m * scale.
__device__ __forceinline__ float rest_of_origin(float scale, float m) {
  return m == -INFINITY ? 1.0f : fast_exp2(-fmaf(m, scale, -(m * scale)));
}

// The sum of x over the four lanes that share a row.
__device__ __forceinline__ float sum_of_row(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// Arrives at a slot's barrier, once for the calling warp. For an `empty` barrier, a warp calls it when it no longer
// reads the slot.
template <class State>
__device__ __forceinline__ void leave_slot(const State& state, uint64_t* empty) {
  __syncwarp();
  if (state.lane == 0) arrive(empty);
}

// Two neighbouring 16-bit elements of any type. They are written as one word, because nvcc may compile a memcpy of 4
// bytes to stores of single bytes.
using AnyPair [[gnu::may_alias]] = uint32_t;

// Writes two neighbouring elements. kAligned: the address is a multiple of their common size.
template <bool kAligned>
__device__ __forceinline__ void store_pair(float* target, float low, float high) {
  const float pair[2] = {low, high};
  if constexpr (kAligned) {
    memcpy(__builtin_assume_aligned(static_cast<void*>(target), sizeof pair), pair, sizeof pair);
  } else {
    target[0] = low;
    target[1] = high;
  }
}
template <bool kAligned, class T>
__device__ __forceinline__ void store_pair(T* target, float low, float high) {
  const uint32_t pair = pack(T{}, low, high);
  if constexpr (kAligned) {
    *reinterpret_cast<AnyPair*>(target) = pair;
  } else {
    target[0].bits = static_cast<uint16_t>(pair);
    target[1].bits = static_cast<uint16_t>(pair >> 16);
  }
}

// Writes the thread's part of a row, times `scale`: two of each 8 columns, from `target` on.
template <bool kAligned, class Out, int kColumns>
__device__ __forceinline__ void store_columns(Out* target, const WgmmaRows<kColumns>& rows, int half, float scale,
                                              bool is_empty) {
#pragma unroll
  for (int i = 0; i < kColumns / 8; ++i) {
    const float low = rows.o[i * 4 + half * 2] * scale, high = rows.o[i * 4 + half * 2 + 1] * scale;
    store_pair<kAligned>(target + i * 8, is_empty ? 0.0f : low, is_empty ? 0.0f : high);
  }
}
template <class Out, int kColumns>
__device__ __forceinline__ void store_row(Out* target, const WgmmaRows<kColumns>& rows, int half, float scale,
                                          bool is_empty) {
  if (reinterpret_cast<uint64_t>(target) % (2 * sizeof(Out)) == 0) {
    store_columns<true>(target, rows, half, scale, is_empty);
  } else {
    store_columns<false>(target, rows, half, scale, is_empty);
  }
}

// Writes a row's state to the partials, or the normalised row to the output, from column first_column on. sum: l over
// all keys of the row. kDims: the number of dims of the row. rest: the factor that corrects l and o (rest_of_origin).
template <int32_t kDims, class State, int kColumns>
__device__ __forceinline__ void finish_wgmma_row(const State& state, const WgmmaRows<kColumns>& rows, int half,
                                                 int32_t first_column, float sum, float rest = 1.0f) {
  const auto& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const int32_t r = rows.first + half * 8, column = first_column + state.lane % 4 * 2;
  const QueryPlace place = fixed.places[r];
  const int32_t head = head_of_row(state, r);
  NaturalMaximum natural = natural_maximum(call, rows.m[half], sum);
  natural.correction *= rest;
  const float l = sum * natural.correction;
  const float unit = natural.correction * (head_scale(&call.layer.v_scales, state.block.head) *
                                           row_factor(&args.v_scales, place.row, state.block.head));
  if (place.partial_offset >= 0) {
    const int64_t states = place.states, index = place.first_state + head;
    float* const partial = call.plan.partials + place.partial_offset;
    store_row(partial + index * kDims + column, rows, half, unit, l == 0.0f);
    if (column == 0) {
      partial[states * kDims + index] = natural.m;
      partial[states * kDims + states + index] = l;
    }
    return;
  }
  const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
  const float scale = unit * final_scale(natural.m, l, sink);
  const int64_t base = out_element(args, place.row, place.token, head) + column;
  const auto store = [&](auto* data) { store_row(data + base, rows, half, scale, l == 0.0f); };
  switch (type_of(args.out.dtype)) {
    case Type::kF16:
      store(static_cast<F16*>(args.out.data));
      break;
    case Type::kBf16:
      store(static_cast<Bf16*>(args.out.data));
      break;
    default:
      store(static_cast<float*>(args.out.data));
  }
  if (column != 0 || args.lse == nullptr) return;
  args.lse[lse_element(args, place.row, place.token, head)] = final_lse(natural.m, l, sink);
}

// Finds the work of the thread block: a block of the plan, or a part of one. Blocks of the plan are taken from the last
// to the first. Returns false if the thread block has no work.
__device__ __forceinline__ bool find_wgmma_block(const WgmmaCall& call, AttendBlock* block) {
  const int64_t* const live = call.attend.live_blocks;
  const uint32_t parts = static_cast<uint32_t>(call.parts);
  const int64_t blocks = live != nullptr ? *live : static_cast<int64_t>(gridDim.x / parts);
  const uint32_t index = blockIdx.x / parts;
  if (index >= blocks) return false;
  *block = block_at(call.attend, blocks - 1 - index);
  if (has_lists(call.attend)) {
    find_listed_rows(call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads,
                     static_cast<int32_t>(blockIdx.x % parts), &block->row_begin, &block->row_end);
  } else if (parts > 1) {
    block->row_begin += static_cast<int32_t>(blockIdx.x % parts) * kWarpgroupRows;
    if (block->row_end > block->row_begin + kWarpgroupRows) block->row_end = block->row_begin + kWarpgroupRows;
  }
  return block->row_begin < block->row_end;
}

__device__ __forceinline__ unsigned char* aligned_shared_bytes() {
#if defined(__CUDACC__)
  extern __shared__ __align__(1024) unsigned char panels[];  // the alignment of the swizzle pattern
  return panels;
#else
  return cuda_emulation::shared_memory();
#endif
}

// Begins a thread's work on its block: fills *state. Returns false if the block has no work.
template <class Fixed>
__device__ __forceinline__ bool begin_wgmma_block(const WgmmaCall& call, WgmmaStateOf<Fixed>* state) {
  state->call = &call;
  state->shared = aligned_shared_bytes();
  state->fixed = reinterpret_cast<Fixed*>(state->shared);
  if (!find_wgmma_block(call, &state->block)) return false;
  state->item = call.attend.plan.arrays.items + state->block.item;
  state->group = call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads;
  state->rows = state->block.row_end - state->block.row_begin;
  state->thread = static_cast<int32_t>(threadIdx.x);
  state->warp = state->thread / kWarpSize;
  state->lane = state->thread % kWarpSize;
  return true;
}

}  // namespace kvc::kernels::cuda

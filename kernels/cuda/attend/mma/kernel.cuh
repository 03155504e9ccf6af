// Attention on tensor cores (mma.m16n8k16) with float32 sums. A thread block has 4 warps. It computes rows of one kv
// head over the keys of an item, 64 keys at a time. A row is a pair of a query and a query head.
//
//   kKeyWarps = 1: prefill, except what attend/mma/many_rows.cuh computes. The block has 64 rows. A warp has 16 rows
//                  and all keys of a tile.
//   kKeyWarps = 4: decode. All warps have the same 16 rows. A warp has 16 keys of each tile and its own softmax state.
//                  The four states are merged at the end, by the same arithmetic as the states of split items.
//
// A warp computes S = Q K^T of 16 rows in registers, then the online softmax, then O += P V. P stays in registers,
// because two C fragments are one A fragment (attend/mma/layout.h). A tile needs one barrier, and one more for each of
// these: conversion of stored elements, rotation of keys, shared memory with only one stage, and keys that some row
// does not see (find_seen). attend/mma/plan.h describes shared memory. A thread has Dv / 2 registers for o, and 32
// (prefill) or 8 (decode) registers for S.
//
// In a deterministic cache, states are folded: after each fold_keys keys, the state over these keys is merged into the
// state over all earlier keys. So the bits of a row do not depend on how its keys are split.
//
// Lower bounds, for a kv head with R rows: decode reads the D + Dv elements of a token once for each 16 rows, and
// computes 2 R (D + Dv) operations for all rows. Up to some tens of rows, memory is the limit. Prefill is limited by
// the operations.
//
// Keys that a row does not see may hold NaN. The scores of such keys are replaced by -inf. If some row does not see
// every key of a tile, NaN and infinity in its V are replaced by zero, because 0 * NaN is NaN. After the product, the
// replaced values are added to the rows that see their keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/key_rope.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/mma/scores.cuh"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// The state of the 16 rows of a warp.
template <int kDims>
struct WarpRows : RowSums {
  float o[kDims / 8][4];
};

// The online softmax of the warp's rows over one tile.
template <int kDims, int kTiles>
__device__ __forceinline__ void softmax_scores(const MmaState& state, float (&s)[kTiles][4], WarpRows<kDims>& rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float alpha = softmax_row(state, s, half, largest_score(s, half, rows.m[half]), rows);
#pragma unroll
    for (int i = 0; i < kDims / 8; ++i) {
      rows.o[i][half * 2] *= alpha;
      rows.o[i][half * 2 + 1] *= alpha;
    }
  }
}

// o += P V. P is rounded to the 16-bit type of the factors.
template <class P, int kDims, int kTiles>
__device__ __forceinline__ void multiply_values(const MmaState& state, const MmaTile& tile, const unsigned char* v_tile,
                                                int32_t row0, int32_t key0, float (&s)[kTiles][4],
                                                WarpRows<kDims>& rows) {
  const MmaShape& shape = state.call->shape;
  const int32_t lane = state.lane, dims = state.call->attend.layer.v_head_dim;
  // In a deterministic cache, no bit of a result may depend on whether all rows see the tile.
  const bool partly = tile.is_full == 0 || state.call->attend.plan.fold_keys > 0;
  uint32_t found = 0;
  scale_values(state, tile, row0, key0, s);
#pragma unroll
  for (int k = 0; k < kTiles; k += 2) {
    const uint32_t a[4] = {pack(P{}, s[k][0], s[k][1]), pack(P{}, s[k][2], s[k][3]),
                           pack(P{}, s[k + 1][0], s[k + 1][1]), pack(P{}, s[k + 1][2], s[k + 1][3])};
    const int32_t v_row = key0 + k * 8 + lane % 16;
#pragma unroll
    for (int i = 0; i < kDims / 8; i += 2) {
      if (i * 8 >= dims) break;
      uint32_t b[4];
      load_transposed(b, v_tile + swizzled(v_row, i + lane / 16, shape.v_pitch));
      if (partly) found |= take_not_finite<P>(b);
      multiply(P{}, rows.o[i], a, b[0], b[1]);
      multiply(P{}, rows.o[i + 1], a, b[2], b[3]);
    }
  }
  if (partly && __ballot_sync(kAllLanes, found != 0) != 0) {
    const auto weight = [](int32_t, int32_t) { return 1.0f; };
    add_not_finite<P>(state, tile, v_tile, shape.v_pitch, 0, dims, row0, key0, kTiles * 8, weight, rows.o);
  }
}

// The factor of a finished row of o: the scales of V, except scales of tokens.
__device__ __forceinline__ float value_unit(const MmaState& state, int32_t row) {
  const MmaFixed& fixed = *state.fixed;
  return head_scale(&state.call->attend.layer.v_scales, fixed.block.head) *
         row_factor(&state.call->attend.args.v_scales, fixed.places[row].row, fixed.block.head);
}

// The address, in the folded o (o of earlier keys, in shared memory), of element e of the lane's fragment i.
__device__ __forceinline__ float* folded_o(const MmaState& state, int i, int e) {
  float* const folded = reinterpret_cast<float*>(state.shared + state.call->shape.folded_at);
  const int32_t fragments = state.call->attend.layer.v_head_dim / 8;
  return folded + ((state.warp * fragments + i) * 4 + e) * kWarpSize + state.lane;
}

// Merges the states over the last fold_keys keys into the states over earlier keys. Then sets the states over the last
// keys to empty. The arithmetic is the same as for the states of split items. fixed.m and fixed.l belong to earlier
// keys. The warp must have all keys of its rows.
template <int kDims>
__device__ __forceinline__ void fold_rows(const MmaState& state, int32_t row0, WarpRows<kDims>& rows) {
  MmaFixed& fixed = *state.fixed;
  const int32_t dims = state.call->attend.layer.v_head_dim;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = row0 + state.lane / 4 + half * 8;
    const float m = fixed.m[row], l = fixed.l[row], next_l = quad_sum(rows.l[half]);
    const NaturalMaximum next = natural_maximum(state.call->attend, rows.m[half], next_l);
    const float unit = row < state.rows ? value_unit(state, row) : 1.0f;
#pragma unroll
    for (int i = 0; i < kDims / 4; ++i) {
      if (i / 2 * 8 >= dims) break;
      float& x = rows.o[i / 2][half * 2 + i % 2];
      const float o = x * unit * next.correction;
      float m_before = m, l_before = l;
      merge_state(folded_o(state, i / 2, half * 2 + i % 2), &m_before, &l_before, &o, next.m, next_l * next.correction,
                  1);
      x = 0.0f;
    }
    __syncwarp();
    float m_now = m, l_now = l;
    merge_state<float>(nullptr, &m_now, &l_now, nullptr, next.m, next_l * next.correction, 0);
    if (state.lane % 4 == 0) {
      fixed.m[row] = m_now;
      fixed.l[row] = l_now;
    }
    rows.m[half] = -INFINITY;
    rows.l[half] = 0.0f;
  }
  __syncwarp();
}

// Replaces the states of the rows by the folded states.
template <int kDims>
__device__ __forceinline__ void take_folded(const MmaState& state, int32_t row0, WarpRows<kDims>& rows) {
#pragma unroll
  for (int i = 0; i < kDims / 2; ++i) {
    if (i / 4 * 8 >= state.call->attend.layer.v_head_dim) break;
    rows.o[i / 4][i % 4] = *folded_o(state, i / 4, i % 4);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = row0 + state.lane / 4 + half * 8;
    rows.m[half] = state.fixed->m[row];
    rows.l[half] = state.lane % 4 == 0 ? state.fixed->l[row] : 0.0f;
  }
}

// Writes the states of all warps to shared memory. o [kKeyWarps][row][Dv] overwrites q and the tiles.
template <int kDims, int kKeyWarps>
__device__ __forceinline__ void share_states(const MmaState& state, int32_t row0, WarpRows<kDims>& rows) {
  MmaFixed& fixed = *state.fixed;
  const int32_t dims = state.call->attend.layer.v_head_dim, pair = state.lane % 4 * 2;
  const int32_t first = kKeyWarps == 1 ? row0 : state.warp * kMmaRows;
  float* const results = reinterpret_cast<float*>(state.shared + state.call->shape.q_at);
  __syncthreads();  // q and the tiles are no longer read
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = first + state.lane / 4 + half * 8;
    const float l = quad_sum(rows.l[half]);
    if (pair == 0) {
      fixed.m[row] = rows.m[half];
      fixed.l[row] = l;
    }
#pragma unroll
    for (int i = 0; i < kDims / 8; ++i) {
      if (i * 8 >= dims) break;
      float* const o = results + row * dims + i * 8 + pair;
      o[0] = rows.o[i][half * 2];
      o[1] = rows.o[i][half * 2 + 1];
    }
  }
  __syncthreads();
}

// Merges the kKeyWarps states of each row to one state in natural-log units, the units of folded states. Writes m, l,
// and the factors of the warps' o to shared memory.
template <int kKeyWarps>
__device__ __forceinline__ void merge_warps(const MmaState& state) {
  MmaFixed& fixed = *state.fixed;
  const int32_t r = state.thread, rows = state.call->shape.cut.rows;
  const bool folds = state.call->attend.plan.fold_keys > 0;
  float m = -INFINITY, l = 0.0f, factors[kKeyWarps] = {};
  if (r < state.rows) {
#pragma unroll
    for (int w = 0; w < kKeyWarps; ++w) {
      const NaturalMaximum natural =
          folds ? NaturalMaximum{fixed.m[w * rows + r], 1.0f}
                : natural_maximum(state.call->attend, fixed.m[w * rows + r], fixed.l[w * rows + r]);
      float own[kKeyWarps];
#pragma unroll
      for (int i = 0; i < kKeyWarps; ++i) own[i] = i == w ? natural.correction : 0.0f;
      merge_state(factors, &m, &l, own, natural.m, fixed.l[w * rows + r] * natural.correction, kKeyWarps);
    }
  }
  __syncthreads();
  if (r < state.rows) {
    fixed.m[r] = m;
    fixed.l[r] = l;
#pragma unroll
    for (int w = 0; w < kKeyWarps; ++w) fixed.factors[r * kKeyWarps + w] = factors[w];
  }
  __syncthreads();
}

// Writes the states of the rows to the partials, or the normalised rows to the output.
template <int kKeyWarps>
__device__ __forceinline__ void finish_mma_rows(const MmaState& state) {
  const MmaFixed& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const int32_t dims = call.layer.v_head_dim, rows = state.call->shape.cut.rows;
  const int32_t block = rotation_block(call.layer, dims);
  float* const results = reinterpret_cast<float*>(state.shared + state.call->shape.q_at);
  const Type type = type_of(args.out.dtype);
  for (int32_t r = state.warp; r < state.rows; r += state.call->shape.cut.warps) {
    const QueryPlace& place = fixed.places[r];
    const int32_t head = mma_head_of(fixed, r);
    const float m = fixed.m[r], l = fixed.l[r];
    const float unit = call.plan.fold_keys > 0 ? 1.0f : value_unit(state, r);
    const bool is_part = place.partial_offset >= 0;
    const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const float scale = is_part ? unit : unit * final_scale(m, l, sink);
    const int64_t states = place.states, index = place.first_state + head;
    float* const partial = call.plan.partials + (is_part ? place.partial_offset : 0);
    const int64_t base = out_element(args, place.row, place.token, head);
    float* const merged = results + r * dims;
    for (int32_t d = state.lane; d < dims; d += kWarpSize) {
      float o = 0.0f;
#pragma unroll
      for (int w = 0; w < kKeyWarps; ++w) {
        o = fmaf(results[(w * rows + r) * dims + d], fixed.factors[r * kKeyWarps + w], o);
      }
      merged[d] = l == 0.0f ? 0.0f : o * scale;
    }
    if (block > 0) gather_by_warp(merged, dims, block, state.lane);
    for (int32_t d = state.lane; d < dims; d += kWarpSize) {
      if (is_part) {
        partial[index * dims + d] = merged[d];
      } else {
        store_element(type, args.out.data, base + d, merged[d]);
      }
    }
    if (state.lane != 0) continue;
    if (is_part) {
      partial[states * dims + index] = m;
      partial[states * dims + states + index] = l;
    } else if (args.lse != nullptr) {
      args.lse[lse_element(args, place.row, place.token, head)] = final_lse(m, l, sink);
    }
  }
}

// Calls compute(tile, K, V) for each tile of the item that some row sees. Meanwhile the copies of the next `stages - 1`
// tiles are in flight, and the pages of the tile after them have been looked up. Q, P: the types to which K and V of
// fewer bits are converted. kTurns: keys are rotated on read. kDims: the largest number of dims of V; 0: rows are
// latent.
template <class Q, class P, bool kTurns, int kDims, class Compute>
__device__ __forceinline__ void for_each_tile(MmaState& state, const Compute& compute) {
  const MmaShape& shape = state.call->shape;
  const int32_t stages = shape.stages;
  for (int32_t i = 0; i < stages; ++i) prepare_tile(state);
  __syncthreads();
  for (int32_t i = 0; i < stages - 1; ++i) {
    if (i < state.prepared) begin_tile(state, i);
    close_copies();
  }
  for (int32_t i = 0; i < state.prepared; ++i) {
    if (stages == 3) wait_copies<1>();
    if (stages == 2) wait_copies<0>();
    __syncthreads();  // the tile has arrived, and the previous tile is no longer read
    if (i + stages - 1 < state.prepared) begin_tile(state, i + stages - 1);
    close_copies();
    if (stages == 1) {
      wait_copies<0>();
      __syncthreads();
    }
    prepare_tile(state);
    unsigned char *const k_tile = state.k_tile(i), *const v_tile = state.v_tile(i);
    if (shape.k_raw > 0) {
      dequantise_tile<Q, P, kDims>(state, state.tile(i), state.raw_tile(i), k_tile, v_tile);
      __syncthreads();
    }
    if constexpr (kTurns) {
      if (kHasLevels<kDims> && stored_type(state.call->attend.layer) == Type::kU4) {
        unspread_keys<Q>(state, state.tile(i), state.raw_tile(i), k_tile);
      } else {
        rotate_keys<Q>(state, state.tile(i), k_tile);
      }
      __syncthreads();
    }
    compute(state.tile(i), k_tile, v_tile);
  }
  wait_copies<0>();
}

// Begins block `index` of the call. Returns false if the block has no work. Otherwise ends with a barrier.
__device__ __forceinline__ bool begin_mma_block(const MmaCall& call, int64_t index, MmaState* state) {
  state->call = &call;
  state->shared = shared_bytes();
  state->fixed = reinterpret_cast<MmaFixed*>(state->shared);
  state->thread = static_cast<int32_t>(threadIdx.x);
  state->warp = state->thread / kWarpSize;
  state->lane = state->thread % kWarpSize;
  AttendBlock block;
  if (!find_block(call.attend, index, &block)) return false;
  if (state->thread == 0) {
    MmaFixed& fixed = *state->fixed;
    fixed.item = call.attend.plan.arrays.items + block.item;
    fixed.block = block;
    fixed.group = call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads;
  }
  __syncthreads();
  return true;
}

// Begins a round, which computes up to cut.rows rows of the block, from block.row_begin on. Finds the masks and the
// first key of these rows, and loads their queries.
template <class Q>
__device__ __forceinline__ void begin_mma_round(MmaState& state) {
  const MmaFixed& fixed = *state.fixed;
  const MmaCut& cut = state.call->shape.cut;
  const int32_t rows = fixed.block.row_end - fixed.block.row_begin;
  state.rows = rows < cut.rows ? rows : cut.rows;
  begin_mma_rows(state);
  state.leaf_index = -1;
  const uint32_t keys = static_cast<uint32_t>(cut.keys);
  state.next_key = fixed.keys_begin / keys * keys;
  state.prepared = 0;
  load_mma_queries<Q>(state);
}

// Returns whether another round follows. All threads call it. After the call, the shared memory of the last round may
// be overwritten.
__device__ __forceinline__ bool next_mma_round(const MmaState& state) {
  MmaFixed& fixed = *state.fixed;
  __syncthreads();
  if (state.thread == 0) fixed.block.row_begin += state.call->shape.cut.rows;
  __syncthreads();
  return fixed.block.row_begin < fixed.block.row_end;
}

// Q: the type of q and K in products. P: the type of P and V in products. kTurns: keys are rotated on read. A thread
// may have 255 registers, because shared memory is divided for at most two blocks on a multiprocessor
// (attend/mma/plan.h).
template <class Q, class P, int kDims, int kKeyWarps, bool kTurns>
__global__ void __launch_bounds__(kAttendThreads, 2) attend_mma_kernel(const __grid_constant__ MmaCall call) {
  constexpr int kTiles = kMmaTileKeys / 8 / kKeyWarps;
  MmaState state;
  const int64_t blocks = count_blocks(call.attend);
  for (int64_t index = blockIdx.x; index < blocks; index += gridDim.x) {
    if (!begin_mma_block(call, index, &state)) continue;
    const int32_t row0 = kKeyWarps == 1 ? state.warp * kMmaRows : 0;
    const int32_t key0 = kKeyWarps == 1 ? 0 : state.warp * (kMmaTileKeys / kKeyWarps);
    // Only instances with kKeyWarps = 4 have several rounds: for a block of 64 rows, on devices whose shared memory is
    // too small for 64 rows at once.
    do {
      begin_mma_round<Q>(state);
      WarpRows<kDims> rows = {};
      rows.m[0] = rows.m[1] = -INFINITY;
      const int32_t fold = call.attend.plan.fold_keys;
      int32_t fold_at = 0;
      for_each_tile<Q, P, kTurns, kDims>(
          state, [&](const MmaTile& tile, const unsigned char* k_tile, const unsigned char* v_tile) {
            if (row0 >= state.rows) return;
            if (kKeyWarps == 1 && fold > 0 && tile.begin >= fold_at) {
              if (fold_at > 0) fold_rows(state, row0, rows);
              fold_at = tile.begin - tile.begin % fold + fold;
            }
            float s[kTiles][4];
            multiply_keys<Q, kTurns>(state, k_tile, row0, key0, s);
            score_keys(state, tile, row0, key0, s);
            softmax_scores(state, s, rows);
            multiply_values<P>(state, tile, v_tile, row0, key0, s, rows);
          });
      if (kKeyWarps == 1 && fold > 0 && row0 < state.rows) {
        fold_rows(state, row0, rows);
        take_folded(state, row0, rows);
      }
      share_states<kDims, kKeyWarps>(state, row0, rows);
      merge_warps<kKeyWarps>(state);
      finish_mma_rows<kKeyWarps>(state);
    } while (kKeyWarps > 1 && next_mma_round(state));
    __syncthreads();  // the shared memory of this block is no longer read
  }
}

// The instance that computes a call, by its rows and the dims of V.
template <class Q, class P, bool kTurns>
MmaKernel mma_kernel_of(const MmaCall& call) {
  const bool wide = call.attend.layer.v_head_dim > 128;
  if (call.shape.cut.rows == kMostRows) {
    return wide ? attend_mma_kernel<Q, P, 256, 1, kTurns> : attend_mma_kernel<Q, P, 128, 1, kTurns>;
  }
  return wide ? attend_mma_kernel<Q, P, 256, 4, kTurns> : attend_mma_kernel<Q, P, 128, 4, kTurns>;
}
// Each function is in a file of its own.
MmaKernel mma_kernel_of_f16(const MmaCall& call);
MmaKernel mma_kernel_of_bf16(const MmaCall& call);
MmaKernel rotated_kernel_of_f16(const MmaCall& call);
MmaKernel rotated_kernel_of_bf16(const MmaCall& call);
MmaKernel many_kernel_of_f16(const MmaCall& call);
MmaKernel many_kernel_of_bf16(const MmaCall& call);
MmaKernel latent_kernel(const MmaCall& call);
MmaKernel rotated_latent_kernel(const MmaCall& call);

}  // namespace kvc::kernels::cuda

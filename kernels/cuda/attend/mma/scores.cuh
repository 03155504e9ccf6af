// What a warp does with its 16 rows and its keys of a tile, in attend/mma/kernel.cuh and attend/mma/latent.cuh: S = Q
// K^T in registers, scales, options, masks, the online softmax, and the handling of NaN and infinity in V.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/key_rope.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// The softmax state of a warp's 16 rows. A lane has parts of the rows lane / 4 and lane / 4 + 8: of each 8 columns, the
// columns lane % 4 * 2 and lane % 4 * 2 + 1.
struct RowSums {
  float m[2], l[2];  // l: the sum over the lane's keys only
};

// s += Q K^T of the 16 rows from row0 on and the 8 keys from key0 on. K's fragments for two steps are loaded together.
template <class Q>
__device__ __forceinline__ void add_products(const MmaState& state, const KeySteps& keys, int32_t row0, int32_t key0,
                                             float (&s)[1][4]) {
  const MmaShape& shape = state.call->shape;
  const int32_t lane = state.lane;
  const unsigned char* const q = state.shared + shape.q_at;
  const int32_t q_row = row0 + lane % 16, q_chunk = keys.q_chunk + lane / 16, k_row = key0 + lane % 8,
                k_chunk = keys.chunk + lane / 8;
  float odd[4] = {};  // a second chain of sums, so that a product does not wait for the previous one
#pragma unroll 2
  for (int32_t step = 0; step < keys.steps; step += 2) {
    uint32_t a[4], b[4];
    load_matrices(b, keys.tile + swizzled(k_row, step * 2 + k_chunk, keys.pitch));
    load_matrices(a, q + swizzled(q_row, step * 2 + q_chunk, shape.k_pitch));
    multiply(Q{}, s[0], a, b[0], b[1]);
    if (step + 1 == keys.steps) break;  // the number of steps is odd, so the second product has no operands
    load_matrices(a, q + swizzled(q_row, step * 2 + 2 + q_chunk, shape.k_pitch));
    multiply(Q{}, odd, a, b[2], b[3]);
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) s[0][e] += odd[e];
}

// s += Q K^T of the 16 rows from row0 on and the kTiles * 8 keys from key0 on.
template <class Q, int kTiles>
__device__ __forceinline__ void add_products(const MmaState& state, const KeySteps& keys, int32_t row0, int32_t key0,
                                             float (&s)[kTiles][4]) {
  const MmaShape& shape = state.call->shape;
  const int32_t lane = state.lane;
  const unsigned char* const q = state.shared + shape.q_at;
  const int32_t q_row = row0 + lane % 16, q_chunk = keys.q_chunk + lane / 16;
  const int32_t k_row = key0 + lane / 16 * 8 + lane % 8, k_chunk = keys.chunk + lane / 8 % 2;
#pragma unroll 2
  for (int32_t step = 0; step < keys.steps; ++step) {
    uint32_t a[4];
    load_matrices(a, q + swizzled(q_row, step * 2 + q_chunk, shape.k_pitch));
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      uint32_t b[4];
      load_matrices(b, keys.tile + swizzled(k_row + i * 8, step * 2 + k_chunk, keys.pitch));
      multiply(Q{}, s[i], a, b[0], b[1]);
      multiply(Q{}, s[i + 1], a, b[2], b[3]);
    }
  }
}

// Computes S of the 16 rows from row0 on and the kTiles * 8 keys from key0 of the tile on. kTurns: keys are rotated on
// read.
template <class Q, bool kTurns, int kTiles>
__device__ __forceinline__ void multiply_keys(const MmaState& state, const unsigned char* k_tile, int32_t row0,
                                              int32_t key0, float (&s)[kTiles][4]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
  if constexpr (kTurns) {
#pragma unroll 1
    for (int32_t i = 0; i < RotatedParts<Q>::kCount + 2; ++i) {
      add_products<Q>(state, rotated_steps<Q>(state, k_tile, i), row0, key0, s);
      if (!RotatedParts<Q>::kIsScaled) continue;
      const float factor = factor_behind<Q>(i);
#pragma unroll
      for (int e = 0; e < kTiles * 4; ++e) s[e / 4][e % 4] *= factor;
    }
  } else {
    const KeySteps all = {k_tile, state.call->shape.k_pitch, 0, 0, state.call->attend.layer.head_dim / kMmaDepth};
    add_products<Q>(state, all, row0, key0, s);
  }
}

// Converts dot products to scores, in the units of call.exp2_scale. The score of a key that the row does not see
// becomes -inf.
template <int kTiles>
__device__ __forceinline__ void score_keys(const MmaState& state, const MmaTile& tile, int32_t row0, int32_t key0,
                                           float (&s)[kTiles][4]) {
  const AttendCall& call = state.call->attend;
  const MmaFixed& fixed = *state.fixed;
  const int32_t first_key = key0 + state.lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = row0 + state.lane / 4 + half * 8;
    if (state.call->has_units != 0) {
      const float unit = fixed.units[row];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        s[i][half * 2] *= unit * scale_of_key(state, tile.k_scale[first_key + i * 8]);
        s[i][half * 2 + 1] *= unit * scale_of_key(state, tile.k_scale[first_key + i * 8 + 1]);
      }
    }
    if (call.has_options != 0) {
      const float cap = static_cast<float>(call.args.softcap), slope = fixed.slopes[row];
      const uint32_t flags = plan_of(call)->flags;
#pragma unroll
      for (int i = 0; i < kTiles * 2; ++i) {
        const int32_t key = first_key + i / 2 * 8 + i % 2;
        float score = s[i / 2][half * 2 + i % 2] * call.option_scale;
        if (call.args.softcap != 0.0) score = tanhf(score) * cap;
        const float distance = static_cast<float>(fixed.masks[row].position - tile.position[key]);
        s[i / 2][half * 2 + i % 2] = slope == 0.0f ? score : score - slope * alibi_distance(flags, distance);
      }
    }
    if (tile.is_full != 0) continue;
    const uint64_t seen = row < state.rows ? tile.seen[row] >> first_key : 0;
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      if (((seen >> (i / 2 * 8 + i % 2)) & 1u) == 0) s[i / 2][half * 2 + i % 2] = -INFINITY;
    }
  }
}

// Returns the sum of x over the four lanes that share a row.
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// Returns the largest score of the lane's row `half` (0 or 1) over the warp's keys, but at least `least`.
template <int kTiles>
__device__ __forceinline__ float largest_score(const float (&s)[kTiles][4], int half, float least) {
  float largest = least;
#pragma unroll
  for (int i = 0; i < kTiles; ++i) largest = fmaxf(largest, fmaxf(s[i][half * 2], s[i][half * 2 + 1]));
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
}

// The online softmax of the lane's row `half`. s becomes p. Returns the factor that rescales the row's o.
template <int kTiles>
__device__ __forceinline__ float softmax_row(const MmaState& state, float (&s)[kTiles][4], int half, float largest,
                                             RowSums& sums) {
  const float scale = state.call->attend.exp2_scale;
  const float alpha = sums.m[half] == largest ? 1.0f : fast_exp2((sums.m[half] - largest) * scale);
  const float origin = largest == -INFINITY ? 0.0f : largest;  // while no key was seen, every p is 0
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    float& p = s[i / 2][half * 2 + i % 2];
    p = fast_exp2((p - origin) * scale);
    sum += p;
  }
  sums.m[half] = largest;
  sums.l[half] = fmaf(sums.l[half], alpha, sum);
  return alpha;
}

// Multiplies P of the 16 rows from row0 on by the tokens' scales of V, if tokens have scales. The scales of keys that a
// row does not see may be NaN, so there P stays 0.
template <int kTiles>
__device__ __forceinline__ void scale_values(const MmaState& state, const MmaTile& tile, int32_t row0, int32_t key0,
                                             float (&s)[kTiles][4]) {
  if (!has_token_scales(&state.call->attend.layer.v_scales)) return;
  const int32_t first_key = key0 + state.lane % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = row0 + state.lane / 4 + half * 8;
    const uint64_t seen = tile.is_full != 0 ? ~uint64_t{0} : row < state.rows ? tile.seen[row] >> first_key : 0;
#pragma unroll
    for (int i = 0; i < kTiles * 2; ++i) {
      const int32_t key = i / 2 * 8 + i % 2;
      float& p = s[i / 2][half * 2 + i % 2];
      p = ((seen >> key) & 1u) == 0 ? 0.0f : p * scale_of_key(state, tile.v_scale[first_key + key]);
    }
  }
}

// Adds NaN and infinity in V, times weight(row, key), to those of the 16 rows that see them. The products had zeros in
// their places. values: a tile of V, of which only the keys [key0, key0 + keys) are read. chunk: the 16-byte chunk of
// the tile's rows where the dims of o begin. dims: the number of dims of o.
template <class P, int kFragments, class Weight>
__device__ __forceinline__ void add_not_finite(const MmaState& state, const MmaTile& tile, const unsigned char* values,
                                               int32_t pitch, int32_t chunk, int32_t dims, int32_t row0, int32_t key0,
                                               int32_t keys, const Weight& weight, float (&o)[kFragments][4]) {
  const int32_t row = row0 + state.lane / 4;
#pragma unroll 1
  for (int32_t key = key0; key < key0 + keys; ++key) {
    const bool all = tile.is_full != 0;
    const bool sees[2] = {row < state.rows && (all || ((tile.seen[row] >> key) & 1u) != 0),
                          row + 8 < state.rows && (all || ((tile.seen[row + 8] >> key) & 1u) != 0)};
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      if (i * 8 >= dims) break;
      uint32_t pair;
      memcpy(&pair, values + swizzled(key, chunk + i, pitch) + state.lane % 4 * 4, sizeof pair);
      const uint32_t found = not_finite(P{}, pair);
      if (found == 0) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const P element = {static_cast<uint16_t>(pair >> (e % 2 * 16))};
        if (!sees[e / 2] || ((found >> (e % 2 * 16)) & 0x8000u) == 0) continue;
        o[i][e] += weight(row + e / 2 * 8, key) * to_float(element);
      }
    }
  }
}

}  // namespace kvc::kernels::cuda

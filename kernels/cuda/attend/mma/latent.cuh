// Attention over latent rows (MLA) on tensor cores. V is the first dims of K's row, so a tile of keys is loaded once
// and multiplied twice. The warps divide the two products differently. In S = Q K^T, a warp computes 16 rows and a part
// of the keys. In O += P V, a warp computes all rows and a part of V's columns. So P and the factors that rescale o go
// through shared memory.
//
//   rows   tile      warps   S of a warp       o of a warp
//     64   64 keys   8       16 rows x 32 keys   64 rows x 64 columns, 128 registers of a thread
//     16   32 keys   4       16 rows x 8 keys    16 rows x 128 columns, 64 registers
//
// Lower bounds, for D = 576, Dv = 512, 16 bits: a row has 1152 bytes. With 16 heads, there are 30 operations a byte, so
// memory is the limit. With 128 heads, the limit is 2 * 128 * (D + Dv) operations a key; the two blocks of these heads
// read a tile once from memory and twice from the L2 cache. After the products, shared memory is the next limit: 16
// rows x 32 keys of S take 3 loads of 512 bytes for 4 products, and o takes 8 loads for 32 products.
//
// Shared memory: with 64 rows, q has 72 KiB, and there are two tiles of 72 KiB (sm_90, sm_100) or one tile (sm_80).
// With 16 rows, q has 18 KiB, and there are up to three tiles of 36 KiB. A device with 99 KiB for a block can run only
// blocks of 16 rows.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/merge.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/kernel.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/mma/scores.cuh"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

constexpr MmaCut latent_cut(int32_t rows) { return rows == kMostRows ? kLatentMany : kLatentFew; }

// How the warps of a block divide its products.
template <int kRows>
struct LatentCut {
  static constexpr MmaCut kCut = latent_cut(kRows);
  static constexpr int kRowGroups = kRows / kMmaRows;         // the number of groups of 16 rows
  static constexpr int kKeyGroups = kCut.warps / kRowGroups;  // the number of warps that compute the same rows of S
  static constexpr int kKeys = kCut.keys / kKeyGroups;        // the number of keys of a warp in S
  // The largest number of fragments of o that a warp has for each group of rows. A fragment has 8 columns.
  static constexpr int kFragments = kMaxLatentDim / kCut.warps / 8;
  static_assert(kKeyGroups * kRows <= 2 * kMostRows, "MmaFixed.m");
};

// A warp's part of O: all rows, and the dims [first, first + dims) of V.
template <int kRows>
struct LatentColumns {
  float o[LatentCut<kRows>::kRowGroups][LatentCut<kRows>::kFragments][4];
  int32_t first, dims;
};

// The place of 8 elements of P in a tile: of row `row`, and of the keys from 8 * chunk on. A row of P has one element
// for each key of the tile.
template <int kRows>
__device__ __forceinline__ int32_t place_of_p(const MmaShape& shape, int32_t row, int32_t chunk) {
  constexpr int kKeys = LatentCut<kRows>::kCut.keys;
  return swizzled(row % kKeys, shape.p_chunk + row / kKeys * (kKeys / 8) + chunk, shape.k_pitch);
}

// Writes P of the warp's rows and keys to the tile, and the factors of o to fixed.factors. Ends with a barrier.
template <class T, int kRows, int kTiles>
__device__ __forceinline__ void share_probabilities(const MmaState& state, const MmaTile& tile, unsigned char* k_tile,
                                                    int32_t row0, int32_t key_group, float (&s)[kTiles][4],
                                                    RowSums& sums) {
  using Cut = LatentCut<kRows>;
  MmaFixed& fixed = *state.fixed;
  const int32_t key0 = key_group * Cut::kKeys, pair = state.lane % 4, first = row0 + state.lane / 4;
  const bool has_rows = row0 < state.rows;
#pragma unroll
  for (int half = 0; half < 2 && has_rows; ++half) {
    const float largest = largest_score(s, half, sums.m[half]);
    if (pair == 0) fixed.m[key_group * kRows + first + half * 8] = largest;
  }
  __syncthreads();  // the maxima are written, and the last dims of K are no longer read
  if (has_rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = first + half * 8;
      float largest = fixed.m[row];
#pragma unroll
      for (int i = 1; i < Cut::kKeyGroups; ++i) largest = fmaxf(largest, fixed.m[i * kRows + row]);
      const float alpha = softmax_row(state, s, half, largest, sums);
      if (pair == 0 && key_group == 0) fixed.factors[row] = alpha;
    }
    scale_values(state, tile, row0, key0, s);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t packed = pack(T{}, s[i][half * 2], s[i][half * 2 + 1]);
        const int32_t place = place_of_p<kRows>(state.call->shape, first + half * 8, key0 / 8 + i);
        memcpy(__builtin_assume_aligned(k_tile + place + pair * 4, 4), &packed, sizeof packed);
      }
    }
  }
  __syncthreads();
}

// Multiplies o by the factors of the rows, unless all of them are 1.
template <int kRows>
__device__ __forceinline__ void rescale_columns(const MmaState& state, LatentColumns<kRows>& columns) {
  using Cut = LatentCut<kRows>;
  const float* const factors = state.fixed->factors + state.lane / 4;
#pragma unroll
  for (int g = 0; g < Cut::kRowGroups; ++g) {
    if (g * kMmaRows >= state.rows) break;
    const float factor[2] = {factors[g * kMmaRows], factors[g * kMmaRows + 8]};
    if (__ballot_sync(kAllLanes, factor[0] != 1.0f || factor[1] != 1.0f) == 0) continue;
#pragma unroll
    for (int i = 0; i < Cut::kFragments; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) columns.o[g][i][e] *= factor[e / 2];
    }
  }
}

// o += P V for the warp's columns. If some row does not see every key of a tile, NaN and infinity in its V are
// replaced by zero. After the product, they are added to the rows that see their keys, times P. (They are also in K.
// But the score may be -inf, or finite with softcap.)
template <class T, int kRows>
__device__ __forceinline__ void multiply_columns(const MmaState& state, const MmaTile& tile,
                                                 const unsigned char* k_tile, LatentColumns<kRows>& columns) {
  using Cut = LatentCut<kRows>;
  const MmaShape& shape = state.call->shape;
  const int32_t lane = state.lane, chunk = columns.first / 8;
  // In a deterministic cache, no bit of a result may depend on whether all rows see the tile.
  const bool partly = tile.is_full == 0 || state.call->attend.plan.fold_keys > 0;
  uint32_t found = 0;
#pragma unroll 1
  for (int32_t step = 0; step < Cut::kCut.keys / kMmaDepth; ++step) {
    uint32_t a[Cut::kRowGroups][4];
#pragma unroll
    for (int g = 0; g < Cut::kRowGroups; ++g) {
      if (g * kMmaRows >= state.rows) break;
      load_matrices(a[g], k_tile + place_of_p<kRows>(shape, g * kMmaRows + lane % 16, step * 2 + lane / 16));
    }
#pragma unroll
    for (int i = 0; i < Cut::kFragments; i += 2) {
      if (i * 8 >= columns.dims) break;
      uint32_t b[4];
      load_transposed(b, k_tile + swizzled(step * kMmaDepth + lane % 16, chunk + i + lane / 16, shape.k_pitch));
      if (partly) found |= take_not_finite<T>(b);
#pragma unroll
      for (int g = 0; g < Cut::kRowGroups; ++g) {
        if (g * kMmaRows >= state.rows) break;
        multiply(T{}, columns.o[g][i], a[g], b[0], b[1]);
        multiply(T{}, columns.o[g][i + 1], a[g], b[2], b[3]);
      }
    }
  }
  if (!partly || __ballot_sync(kAllLanes, found != 0) == 0) return;
  const auto weight = [&](int32_t row, int32_t key) {
    T p;
    memcpy(&p, k_tile + place_of_p<kRows>(shape, row, key / 8) + key % 8 * 2, sizeof p);
    return to_float(p);
  };
#pragma unroll
  for (int g = 0; g < Cut::kRowGroups; ++g) {
    if (g * kMmaRows >= state.rows) break;
    add_not_finite<T>(state, tile, k_tile, shape.k_pitch, chunk, columns.dims, g * kMmaRows, 0, Cut::kCut.keys, weight,
                      columns.o[g]);
  }
}

// The address, in the folded o (o of earlier keys, [16 rows][Dv] in shared memory), of element e of the thread's
// fragment i.
__device__ __forceinline__ float* folded_column(const MmaState& state, int32_t first, int i, int e) {
  float* const folded = reinterpret_cast<float*>(state.shared + state.call->shape.folded_at);
  const int32_t row = state.lane / 4 + e / 2 * 8, column = first + i * 8 + state.lane % 4 * 2 + e % 2;
  return folded + row * state.call->attend.layer.v_head_dim + column;
}

// Does the same as fold_rows (attend/mma/kernel.cuh), for a block of 16 rows. m of earlier keys is in fixed.m from
// kMostRows on, and l is in fixed.l. Ends with a barrier.
template <class Columns>
__device__ __forceinline__ void fold_columns(const MmaState& state, int32_t key_group, RowSums& sums,
                                             Columns& columns) {
  using Cut = LatentCut<kLatentFew.rows>;
  MmaFixed& fixed = *state.fixed;
  float* const folded_m = fixed.m + kMostRows;
  static_assert(Cut::kKeyGroups * kLatentFew.rows <= kMostRows, "folded_m");
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = quad_sum(sums.l[half]);
    if (state.lane % 4 == 0) fixed.m[key_group * kLatentFew.rows + state.lane / 4 + half * 8] = l;
  }
  __syncthreads();
  float m_now[2], l_now[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = state.lane / 4 + half * 8;
    const float m = folded_m[row], l = fixed.l[row];
    float next_l = fixed.m[row];
#pragma unroll
    for (int i = 1; i < Cut::kKeyGroups; ++i) next_l += fixed.m[i * kLatentFew.rows + row];
    const NaturalMaximum next = natural_maximum(state.call->attend, sums.m[half], next_l);
    const float unit = row < state.rows ? value_unit(state, row) : 1.0f;
#pragma unroll
    for (int i = 0; i < Cut::kFragments * 2; ++i) {
      if (i / 2 * 8 >= columns.dims) break;
      const int e = half * 2 + i % 2;
      float& x = columns.o[0][i / 2][e];
      const float o = x * unit * next.correction;
      float m_before = m, l_before = l;
      merge_state(folded_column(state, columns.first, i / 2, e), &m_before, &l_before, &o, next.m,
                  next_l * next.correction, 1);
      x = 0.0f;
    }
    m_now[half] = m;
    l_now[half] = l;
    merge_state<float>(nullptr, &m_now[half], &l_now[half], nullptr, next.m, next_l * next.correction, 0);
    sums.m[half] = -INFINITY;
    sums.l[half] = 0.0f;
  }
  __syncthreads();  // the previous states are no longer read
  if (state.warp == 0 && state.lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      folded_m[state.lane / 4 + half * 8] = m_now[half];
      fixed.l[state.lane / 4 + half * 8] = l_now[half];
    }
  }
  __syncthreads();
}

// Replaces the states of the rows by the folded states.
template <class Columns>
__device__ __forceinline__ void take_folded_columns(const MmaState& state, RowSums& sums, Columns& columns) {
#pragma unroll
  for (int i = 0; i < LatentCut<kLatentFew.rows>::kFragments * 4; ++i) {
    if (i / 4 * 8 >= columns.dims) break;
    columns.o[0][i / 4][i % 4] = *folded_column(state, columns.first, i / 4, i % 4);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = state.lane / 4 + half * 8;
    sums.m[half] = state.fixed->m[kMostRows + row];
    sums.l[half] = state.warp == 0 && state.lane % 4 == 0 ? state.fixed->l[row] : 0.0f;
  }
}

// Writes m and l of all rows, and o [row][Dv], to shared memory. o overwrites q and the tiles. Ends with a barrier.
template <int kRows>
__device__ __forceinline__ void share_columns(const MmaState& state, int32_t row0, int32_t key_group,
                                              const RowSums& sums, const LatentColumns<kRows>& columns) {
  using Cut = LatentCut<kRows>;
  MmaFixed& fixed = *state.fixed;
  const int32_t group = state.lane / 4, pair = state.lane % 4, dims = state.call->attend.layer.v_head_dim;
  float* const results = reinterpret_cast<float*>(state.shared + state.call->shape.q_at);
  __syncthreads();  // q, the tiles and m are no longer read
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = quad_sum(sums.l[half]);
    if (pair == 0) fixed.m[key_group * kRows + row0 + group + half * 8] = l;
  }
#pragma unroll
  for (int g = 0; g < Cut::kRowGroups; ++g) {
#pragma unroll
    for (int i = 0; i < Cut::kFragments; ++i) {
      if (i * 8 >= columns.dims) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        results[(g * kMmaRows + group + e / 2 * 8) * dims + columns.first + i * 8 + pair * 2 + e % 2] =
            columns.o[g][i][e];
      }
    }
  }
  __syncthreads();
  if (state.thread < kRows) {
    float l = fixed.m[state.thread];
    for (int i = 1; i < Cut::kKeyGroups; ++i) l += fixed.m[i * kRows + state.thread];
    fixed.l[state.thread] = l;
  }
  __syncthreads();
  if (key_group == 0 && pair == 0) {
    fixed.m[row0 + group] = sums.m[0];
    fixed.m[row0 + group + 8] = sums.m[1];
  }
  __syncthreads();
}

// T: the type of q, K, V and P in products. kTurns: keys are rotated on read. Two blocks of few rows run on a
// multiprocessor. A block of many rows may have all registers of a multiprocessor.
template <class T, int kRows, bool kTurns>
__global__ void __launch_bounds__(latent_cut(kRows).warps* kWarpSize, kRows == kMostRows ? 1 : 2)
    attend_latent_kernel(const __grid_constant__ MmaCall call) {
  using Cut = LatentCut<kRows>;
  constexpr bool kFolds = kRows == kLatentFew.rows;
  MmaState state;
  if (blockIdx.x >= count_blocks(call.attend) || !begin_mma_block(call, blockIdx.x, &state)) return;
  const int32_t row0 = state.warp % Cut::kRowGroups * kMmaRows, key_group = state.warp / Cut::kRowGroups;
  const int32_t dims = call.attend.layer.v_head_dim,
                of_warp = (dims + 16 * Cut::kCut.warps - 1) / (16 * Cut::kCut.warps) * 16;
  // Only the kernel of few rows has several rounds: for a block of many rows in a deterministic cache, or on devices
  // whose shared memory is too small for many rows.
  do {
    begin_mma_round<T>(state);
    RowSums sums = {{-INFINITY, -INFINITY}, {}};
    LatentColumns<kRows> columns = {};
    columns.first = state.warp * of_warp;
    columns.dims = dims - columns.first < of_warp ? dims - columns.first : of_warp;
    const int32_t fold = kFolds ? call.attend.plan.fold_keys : 0;
    int32_t fold_at = 0;
    for_each_tile<T, T, kTurns, 0>(state, [&](const MmaTile& tile, unsigned char* k_tile, unsigned char*) {
      if constexpr (kFolds) {
        if (fold > 0 && tile.begin >= fold_at) {
          if (fold_at > 0) fold_columns(state, key_group, sums, columns);
          fold_at = tile.begin - tile.begin % fold + fold;
        }
      }
      float s[Cut::kKeys / 8][4];
      if (row0 < state.rows) {
        multiply_keys<T, kTurns>(state, k_tile, row0, key_group * Cut::kKeys, s);
        score_keys(state, tile, row0, key_group * Cut::kKeys, s);
      }
      share_probabilities<T, kRows>(state, tile, k_tile, row0, key_group, s, sums);
      rescale_columns(state, columns);
      multiply_columns<T>(state, tile, k_tile, columns);
    });
    if constexpr (kFolds) {
      if (fold > 0) {
        fold_columns(state, key_group, sums, columns);
        take_folded_columns(state, sums, columns);
      }
    }
    share_columns(state, row0, key_group, sums, columns);
    merge_warps<1>(state);
    finish_mma_rows<1>(state);
  } while (next_mma_round(state));
}

template <bool kTurns>
MmaKernel latent_kernel_of(const MmaCall& call) {
  const bool is_f16 = type_of(call.attend.args.q.dtype) == Type::kF16;
  if constexpr (!kTurns) {  // rows_of_mma_block
    if (call.shape.cut.rows == kMostRows) {
      return is_f16 ? attend_latent_kernel<F16, kMostRows, false> : attend_latent_kernel<Bf16, kMostRows, false>;
    }
  }
  return is_f16 ? attend_latent_kernel<F16, kLatentFew.rows, kTurns>
                : attend_latent_kernel<Bf16, kLatentFew.rows, kTurns>;
}

}  // namespace kvc::kernels::cuda

// Attention of many rows (prefill) on tensor cores (mma.m16n8k16), for 16-bit K and V of the usual head dims. A thread
// block has 4 warps, and computes up to 128 rows of one kv head over the keys of an item, 64 keys at a time. A row is a
// pair of a query and a query head. attend/mma/kernel.cuh computes the calls that this kernel cannot (why_not_many).
//
// A warp has 32 rows, so each fragment of K and V that it loads from shared memory is used in two products. S, P and o
// stay in registers. A thread has 64 registers for S and Dv registers for o, besides the operands of the products. For
// tiles in which every row sees every key, the softmax and P V have an instance of their own, without masks and without
// tests for NaN.
//
//   iteration t         copies in flight     page ids
//   S = Q K(t)^T        V of tile t          those of tile t + 1 are loaded, and used after the products
//   barrier
//   softmax, o += P V   K of tile t + 1
//   barrier
//
// Shared memory has q, one tile of K and one tile of V. If K has up to 128 dims, two blocks fit on a multiprocessor
// with 164 KiB. Then the softmax of one block runs during the products of the other.
//
// Lower bounds: for a tile, a warp executes D + Dv products, of 8 cycles each on Ampere. The four warps load K, V and q
// from shared memory in 6 D + 4 Dv cycles, which is 5/8 of the time of the products if D = Dv. K and V come from L2
// once for 128 rows, which is 128 operations a byte. The last block of the plan starts first, because with a causal
// mask it has the most keys.
//
// Keys that a row does not see may hold NaN. Their scores are replaced by -inf. If some row does not see every key of a
// tile, NaN and infinity in its V are replaced by zero in the operands, and added to the rows that see their keys.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/attend/mma/plan.h"
#include "kernels/cuda/attend/mma/tiles.cuh"
#include "kernels/cuda/attend/wgmma/rows.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

constexpr int kRowTiles = 2;  // the number of tiles of 16 rows of a warp
static_assert(kManyCut.rows == kManyCut.warps * kRowTiles * kMmaRows && kManyCut.rows == kManyCut.warps * kWarpSize);

// k_rows, v_rows: the addresses of the rows of tile t, at t % 2. there: a bit for each key of that tile. If the bit is
// not set, the key is not read, and its place in the tile holds zeros.
struct ManyFixed : WgmmaRowsFixed<kManyCut.rows> {
  const kvc_backend_item* item;
  AttendBlock block;
  int32_t rows, group;
  PageCursor pages;                    // the page list of the item, with no leaf loaded
  const int32_t* leaf[kManyCut.keys];  // for each thread: the leaf that it read last
  int32_t leaf_index[kManyCut.keys];   // for each thread: the index of that leaf; -1: none yet
  const unsigned char *k_rows[2][kManyCut.keys], *v_rows[2][kManyCut.keys];
  uint32_t there[2][kManyCut.keys / kWarpSize];
};

// A thread's view of its block. Values that are seldom used stay in shared memory, because o and S need most registers.
struct ManyState {
  const MmaCall* call;
  ManyFixed* fixed;
  unsigned char* shared;
  const kvc_backend_item* const& item;
  const AttendBlock& block;
  const int32_t &rows, &group;
  int32_t warp, lane, thread;
};

// An instance of the kernel: its type and dims, and the layout of q and tiles in shared memory. q and tiles consist of
// panels of 64 dims [rows or keys][64], whose rows are swizzled.
template <class T, int kDimsOfK, int kDimsOfV>
struct ManyTiles {
  using Type = T;
  static constexpr int32_t kDims = kDimsOfK, kValueDims = kDimsOfV, kKeys = kManyCut.keys;
  static constexpr int32_t kPanelBytes = kKeys * kPanelPitch, kQueryPanelBytes = kManyCut.rows * kPanelPitch;
};

// Returns the address that a lane supplies to load_matrices: 16-byte chunk `chunk` + `lane_chunk` of row `row`. row % 8
// must be equal to lane % 8. Loops that call it add constants to row and chunk.
__device__ __forceinline__ const unsigned char* matrices_at(const unsigned char* panels, int32_t panel_bytes,
                                                            int32_t row, int32_t chunk, int32_t lane_chunk,
                                                            int32_t lane) {
  return panels + chunk / 8 * panel_bytes + row * kPanelPitch + (((chunk % 8 + lane_chunk) ^ (lane & 7)) << 4);
}

template <int kFloats>
__device__ __forceinline__ float (&fragment(float (&x)[kFloats], int i))[4] {
  return reinterpret_cast<float(&)[4]>(x[i * 4]);
}

// ---- Keys ------------------------------------------------------------------------------------------

// Begins to look up the page of the thread's key in the tile that begins at `begin`. The result is not used before
// place_key. Returns -1 if the key is not read.
__device__ __forceinline__ int32_t look_up_page(const ManyState& state, uint32_t begin, bool is_full) {
  ManyFixed& fixed = *state.fixed;
  const uint32_t key = begin + static_cast<uint32_t>(state.thread);
  if (state.thread >= kManyCut.keys || (!is_full && !sees_any(state, key, key + 1))) return -1;
  PageCursor pages = fixed.pages;
  pages.leaf = fixed.leaf[state.thread];
  pages.leaf_index = fixed.leaf_index[state.thread];
  const int32_t page = page_at(&pages, static_cast<int32_t>(key) / state.call->attend.layer.page_size);
  fixed.leaf[state.thread] = pages.leaf;
  fixed.leaf_index[state.thread] = static_cast<int32_t>(pages.leaf_index);
  return page;
}

// Writes the addresses of the thread's key. slot: t % 2 for tile t (ManyFixed).
__device__ __forceinline__ void place_key(const ManyState& state, uint32_t begin, int32_t page, int32_t slot) {
  if (state.warp >= kManyCut.keys / kWarpSize) return;
  const kvc_backend_layer& layer = state.call->attend.layer;
  const int64_t at = (static_cast<int32_t>(begin) + state.thread) % layer.page_size, head = state.block.head;
  const auto row_in = [&](const kvc_backend_pool& pool) {
    const int64_t row = page * pool.page_stride_bytes + head * pool.head_stride_bytes + at * pool.slot_stride_bytes;
    return static_cast<const unsigned char*>(pool.data) + (page < 0 ? 0 : row);
  };
  state.fixed->k_rows[slot][state.thread] = row_in(layer.k);
  state.fixed->v_rows[slot][state.thread] = row_in(layer.v);
  const uint32_t there = __ballot_sync(kAllLanes, page >= 0);
  if (state.lane == 0) state.fixed->there[slot][state.warp] = there;
}

// Starts the copies of a tile of K or V. Eight neighbouring threads copy the 128 bytes of a key in a panel.
template <class Tiles, int kDims>
__device__ __forceinline__ void begin_rows(const ManyState& state, const unsigned char* const* rows, int32_t slot,
                                           unsigned char* tile) {
  constexpr int32_t kAtOnce = kManyCut.warps * kWarpSize / 8;
  static_assert(kAtOnce % 8 == 0 && kWarpSize % kAtOnce == 0);
  const int32_t thread = hidden(state.thread), first = thread >> 3, chunk = thread & 7;
  const uint32_t* const there = state.fixed->there[slot];
  unsigned char* const target = tile + swizzled(first, chunk, kPanelPitch);
#pragma unroll
  for (int32_t key = 0; key < Tiles::kKeys; key += kAtOnce) {
    const unsigned char* const source = rows[key + first] + chunk * 16;
    const bool is_there = ((there[key / kWarpSize] >> (key % kWarpSize + first)) & 1u) != 0;
#pragma unroll
    for (int32_t panel = 0; panel < kDims / kPanelDims; ++panel) {
      begin_copy(target + panel * Tiles::kPanelBytes + key * kPanelPitch, source + panel * kPanelPitch, is_there);
    }
  }
  close_copies();
}

// ---- Products --------------------------------------------------------------------------------------

// S = Q K^T of the warp's rows and the keys of a tile.
template <class Tiles>
__device__ __forceinline__ void multiply_many_keys(const ManyState& state, const unsigned char* k_tile,
                                                   float (&s)[kRowTiles][Tiles::kKeys / 2]) {
  using T = typename Tiles::Type;
  const int32_t lane = hidden(state.lane);
  const unsigned char* const q = state.shared + state.call->shape.q_at;
  const int32_t q_row = state.warp * kRowTiles * kMmaRows + lane % 16, k_row = lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (float& x : s[r]) x = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < Tiles::kDims / kMmaDepth; ++step) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      load_matrices(a[r], matrices_at(q, Tiles::kQueryPanelBytes, q_row + r * kMmaRows, step * 2, lane / 16, lane));
    }
#pragma unroll
    for (int i = 0; i < Tiles::kKeys / 8; i += 2) {
      uint32_t b[4];
      load_matrices(b, matrices_at(k_tile, Tiles::kPanelBytes, k_row + i * 8, step * 2, lane / 8 % 2, lane));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply(T{}, fragment(s[r], i), a[r], b[0], b[1]);
        multiply(T{}, fragment(s[r], i + 1), a[r], b[2], b[3]);
      }
    }
  }
}

// o += P V. kFull: every row sees every key of the tile. Otherwise NaN and infinity in V count as zero. Returns whether
// the lane found such an element.
template <class Tiles, bool kFull>
__device__ __forceinline__ bool multiply_many_values(const ManyState& state, const unsigned char* v_tile,
                                                     const float (&p)[kRowTiles][Tiles::kKeys / 2],
                                                     WgmmaRows<Tiles::kValueDims> (&rows)[kRowTiles]) {
  using T = typename Tiles::Type;
  const int32_t lane = hidden(state.lane);
  uint32_t found = 0;
#pragma unroll
  for (int step = 0; step < Tiles::kKeys / kMmaDepth; ++step) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles * 4; ++i) {
      const float* const pair = p[i / 4] + step * 8 + i % 4 * 2;
      a[i / 4][i % 4] = pack(T{}, pair[0], pair[1]);
    }
#pragma unroll
    for (int i = 0; i < Tiles::kValueDims / 8; i += 2) {
      uint32_t b[4];
      load_transposed(b, matrices_at(v_tile, Tiles::kPanelBytes, step * kMmaDepth + lane % 16, i, lane / 16, lane));
      if (!kFull) found |= take_not_finite<T>(b);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        multiply(T{}, fragment(rows[r].o, i), a[r], b[0], b[1]);
        multiply(T{}, fragment(rows[r].o, i + 1), a[r], b[2], b[3]);
      }
    }
  }
  return found != 0;
}

// Adds NaN and infinity in V to the rows that see their keys. begin: the first key of the tile.
template <class Tiles>
__device__ __forceinline__ void add_odd_values(const ManyState& state, uint32_t begin, const unsigned char* v_tile,
                                               WgmmaRows<Tiles::kValueDims> (&rows)[kRowTiles]) {
  using T = typename Tiles::Type;
  const ManyFixed& fixed = *state.fixed;
#pragma unroll 1
  for (int32_t key = 0; key < Tiles::kKeys; ++key) {
    bool sees[kRowTiles * 2];
#pragma unroll
    for (int j = 0; j < kRowTiles * 2; ++j) {
      const int32_t row = rows[j / 2].first + j % 2 * 8;
      sees[j] = row < state.rows && sees_key(&fixed.tree, &fixed.masks[row], static_cast<int32_t>(begin) + key);
    }
#pragma unroll
    for (int i = 0; i < Tiles::kValueDims / 8; ++i) {
      uint32_t pair;
      memcpy(&pair, v_tile + i / 8 * Tiles::kPanelBytes + swizzled(key, i % 8, kPanelPitch) + state.lane % 4 * 4,
             sizeof pair);
      const uint32_t found = not_finite(T{}, pair);
      if (found == 0) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (((found >> (e * 16)) & 0x8000u) == 0) continue;
        const float odd = to_float(T{static_cast<uint16_t>(pair >> (e * 16))});
#pragma unroll
        for (int j = 0; j < kRowTiles * 2; ++j) {
          if (sees[j]) rows[j / 2].o[i * 4 + j % 2 * 2 + e] += odd;
        }
      }
    }
  }
}

// ---- Tiles -----------------------------------------------------------------------------------------

// The softmax of S, and o += P V. begin: the first key of the tile. kFull: every row sees every key of the tile.
template <class Tiles, bool kFull>
__device__ __forceinline__ void add_tile(const ManyState& state, uint32_t begin, const unsigned char* v_tile,
                                         float (&s)[kRowTiles][Tiles::kKeys / 2],
                                         WgmmaRows<Tiles::kValueDims> (&rows)[kRowTiles]) {
  const float scale = state.call->attend.exp2_scale;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    if (!kFull) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        apply_mask(state, static_cast<int32_t>(begin), rows[r].first + half * 8, half, s[r]);
      }
    }
    float alpha[2];
    softmax_rows(scale, s[r], rows[r], alpha);
    if (__ballot_sync(kAllLanes, alpha[0] != 1.0f || alpha[1] != 1.0f) == 0) continue;  // no maximum has changed
#pragma unroll
    for (int i = 0; i < Tiles::kValueDims / 2; ++i) rows[r].o[i] *= alpha[i / 2 % 2];
  }
  const bool odd = multiply_many_values<Tiles, kFull>(state, v_tile, s, rows);
  if (!kFull && __ballot_sync(kAllLanes, odd) != 0) add_odd_values<Tiles>(state, begin, v_tile, rows);
}

// Computes all tiles that the block's rows see.
template <class Tiles>
__device__ __forceinline__ void compute_many_rows(const ManyState& state,
                                                  WgmmaRows<Tiles::kValueDims> (&rows)[kRowTiles]) {
  ManyFixed& fixed = *state.fixed;
  unsigned char* const k_tile = state.shared + state.call->shape.tiles_at;
  unsigned char* const v_tile = k_tile + Tiles::kKeys * Tiles::kDims * 2;
  const uint32_t end = fixed.keys_end;
  const auto is_full = [&](uint32_t begin) {
    return begin >= fixed.full_begin && begin + Tiles::kKeys <= fixed.full_end;
  };
  uint32_t begin = fixed.keys_begin / Tiles::kKeys * Tiles::kKeys;
  if (begin >= end) return;  // no row sees a key
  const bool computes = state.warp * kRowTiles * kMmaRows < state.rows;
  place_key(state, begin, look_up_page(state, begin, is_full(begin)), 0);
  __syncthreads();
  begin_rows<Tiles, Tiles::kDims>(state, fixed.k_rows[0], 0, k_tile);
#pragma unroll 1
  for (int32_t slot = 0; begin < end; begin += Tiles::kKeys, slot ^= 1) {
    const uint32_t after = begin + Tiles::kKeys;
    wait_copies<0>();
    __syncthreads();  // K has arrived, and V of the previous tile is no longer read
    begin_rows<Tiles, Tiles::kValueDims>(state, fixed.v_rows[slot], slot, v_tile);
    const int32_t page = after < end ? look_up_page(state, after, is_full(after)) : -1;
    float s[kRowTiles][Tiles::kKeys / 2];
    if (computes) multiply_many_keys<Tiles>(state, k_tile, s);
    if (after < end) place_key(state, after, page, slot ^ 1);
    wait_copies<0>();
    __syncthreads();  // V has arrived, and K is no longer read
    if (after < end) begin_rows<Tiles, Tiles::kDims>(state, fixed.k_rows[slot ^ 1], slot ^ 1, k_tile);
    if (!computes) continue;
    if (is_full(begin)) {
      add_tile<Tiles, true>(state, begin, v_tile, s, rows);
    } else {
      add_tile<Tiles, false>(state, begin, v_tile, s, rows);
    }
  }
}

// Begins block `index` of the call: finds its rows and the keys that they see, and loads their queries. Returns false
// if the block has no work. Otherwise ends with a barrier.
template <class Tiles>
__device__ __forceinline__ bool begin_many_block(const ManyState& state, int64_t index) {
  const AttendCall& call = state.call->attend;
  ManyFixed& fixed = *state.fixed;
  AttendBlock block;
  if (!find_block(call, index, &block)) return false;
  if (state.thread == 0) {
    fixed.item = call.plan.arrays.items + block.item;
    fixed.block = block;
    fixed.rows = block.row_end - block.row_begin;
    fixed.group = call.layer.num_q_heads / call.layer.num_kv_heads;
    point_to_call(call, *fixed.item, &fixed);
    fixed.pages = pages_of_item(&call.plan.arrays.tables, fixed.item);
  }
  if (state.thread < kManyCut.keys) fixed.leaf_index[state.thread] = -1;
  __syncthreads();
  if (state.thread < state.rows) begin_wgmma_row(state, state.thread);
  __syncthreads();
  find_gaps(state);
  if (state.warp == 0) find_key_bounds(&fixed, state.rows, state.lane);
  for (int32_t row0 = 0; row0 < kManyCut.rows; row0 += kWarpgroupRows) write_queries<Tiles>(state, row0);
  __syncthreads();
  return true;
}

// Writes the states or the outputs of the warp's rows.
template <class Tiles>
__device__ __forceinline__ void finish_many_rows(const ManyState& state,
                                                 const WgmmaRows<Tiles::kValueDims> (&rows)[kRowTiles]) {
#pragma unroll
  for (int j = 0; j < kRowTiles * 2; ++j) {
    const WgmmaRows<Tiles::kValueDims>& own = rows[j / 2];
    const float sum = own.l[j % 2] + __shfl_xor_sync(kAllLanes, own.l[j % 2], 2),
                rest = rest_of_origin(state.call->attend.exp2_scale, own.m[j % 2]);
    if (own.first + j % 2 * 8 < state.rows) finish_wgmma_row<Tiles::kValueDims>(state, own, j % 2, 0, sum, rest);
  }
}

template <class T, int kDims, int kValueDims>
__global__ void __launch_bounds__(kManyCut.warps* kWarpSize, 2)
    attend_many_kernel(const __grid_constant__ MmaCall call) {
  using Tiles = ManyTiles<T, kDims, kValueDims>;
  unsigned char* const shared = shared_bytes();
  ManyFixed& fixed = *reinterpret_cast<ManyFixed*>(shared);
  const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const ManyState state = {&call, &fixed, shared, fixed.item, fixed.block, fixed.rows, fixed.group, warp, lane, thread};
  for (int64_t index = blockIdx.x; index < count_blocks(call.attend); index += gridDim.x) {
    if (!begin_many_block<Tiles>(state, count_blocks(call.attend) - 1 - index)) continue;
    WgmmaRows<kValueDims> rows[kRowTiles] = {};
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      rows[r].m[0] = rows[r].m[1] = -INFINITY;
      rows[r].first = (warp * kRowTiles + r) * kMmaRows + lane / 4;
    }
    compute_many_rows<Tiles>(state, rows);
    finish_many_rows<Tiles>(state, rows);
    __syncthreads();  // the shared memory of this block is no longer read
  }
}

// The instance for a call that the kernel can compute (why_not_many).
template <class T>
MmaKernel many_kernel_of(const MmaCall& call) {
  const int32_t dims = call.attend.layer.head_dim;
  return dims == 64    ? attend_many_kernel<T, 64, 64>
         : dims == 128 ? attend_many_kernel<T, 128, 128>
                       : attend_many_kernel<T, 192, 128>;
}

}  // namespace kvc::kernels::cuda

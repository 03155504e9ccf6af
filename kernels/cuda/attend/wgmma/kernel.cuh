// Attention by Hopper's warpgroup products (sm_90a). A block of three warpgroups computes up to 128 rows (query, head
// of the group) of one kv head over the keys of an item, 128 keys at a time, or 64 with 256 dims.
//
// The first warpgroup is the producer: it loads tiles (attend/wgmma/tiles.cuh) and needs few registers. The two
// consumers have 64 rows each. They compute S = Q K^T from shared memory into registers, the online softmax in
// registers, and O += P V with P from registers.
//
// Products run asynchronously. S of a tile and P V of the tile before are started together, and the softmax of S runs
// while P V is computed. The two consumers do not wait for each other, so the softmax of one also overlaps with
// products of the other.
//
// Lower bounds: 2 (D + Dv) operations for each row and key. K and V come from L2 once for 128 rows, at 128 operations a
// byte. Blocks start from the last one: with a causal mask it has the most keys.
//
// attend/wgmma/plan.h describes shared memory. A thread has Dv / 2 registers for o, keys / 2 for S and keys / 4 for P.
//
// NaN in keys that a row does not see: the scores of such keys are replaced. In tiles that some row sees in part, NaN
// and infinity in V are replaced by zero. They are then added, from global memory, to the rows that see them.
//
// 8-bit K and V arrive as stored and are dequantised in shared memory (attend/wgmma/convert.cuh), once for 128 rows.
// Scales of heads are multiplied into scores and results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/page_walk.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/wgmma/convert.cuh"
#include "kernels/cuda/attend/wgmma/instructions.cuh"
#include "kernels/cuda/attend/wgmma/layout.h"
#include "kernels/cuda/attend/wgmma/plan.h"
#include "kernels/cuda/attend/wgmma/rows.cuh"
#include "kernels/cuda/attend/wgmma/tiles.cuh"

namespace kvc::kernels::cuda {

// Registers of a thread. A block is launched with kWgmmaThreads times 168.
constexpr int kRegistersToBring = 56, kRegistersToCompute = 224;
static_assert(kRegistersToBring + kWarpgroups * kRegistersToCompute <= (1 + kWarpgroups) * 168);

// Starts S of the warpgroup's rows and the keys in a slot, as a group of its own.
template <class Tiles>
__device__ __forceinline__ void begin_scores(uint32_t q, uint32_t k, float (&s)[Tiles::kKeys / 2]) {
#pragma unroll
  for (int step = 0; step < Tiles::kDims / kMmaDepth; ++step) {
    const uint32_t panel = static_cast<uint32_t>(step / 4), within = static_cast<uint32_t>(step % 4 * kMmaDepth * 2);
    multiply_shared(typename Tiles::Type{}, s, rows_descriptor(q + panel * Tiles::kQueryPanelBytes + within),
                    rows_descriptor(k + panel * Tiles::kPanelBytes + within), step > 0);
  }
  close_products();
}

// Starts o += P V, as a group of its own.
template <class Tiles>
__device__ __forceinline__ void begin_values(const uint32_t (&p)[Tiles::kKeys / kMmaDepth][4], uint32_t v,
                                             float (&o)[Tiles::kValueDims / 2]) {
#pragma unroll
  for (int step = 0; step < Tiles::kKeys / kMmaDepth; ++step) {
    const uint32_t at = v + static_cast<uint32_t>(step * kMmaDepth * kPanelPitch);
    multiply_registers(typename Tiles::Type{}, o, p[step], columns_descriptor(at, Tiles::kKeys));
  }
  close_products();
}

// P as the left operand of a product: two result fragments are one operand (attend/mma/layout.h).
template <class T, int kScores>
__device__ __forceinline__ void pack_tile(const float (&s)[kScores], uint32_t (&p)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) p[i / 4][i % 4] = pack(T{}, s[i * 2], s[i * 2 + 1]);
}

// Whether an element of V's pool is NaN or infinity, and its value as a float. An e5m2 number is the upper byte of a
// float16. In e4m3 all bits are set, which as an upper byte is NaN too.
template <class T>
__device__ __forceinline__ bool is_odd(Type, T element) {
  return not_finite(T{}, element.bits) != 0;
}
__device__ __forceinline__ bool is_odd(Type stored, uint8_t element) { return odd_bytes(stored, element) != 0; }
__device__ __forceinline__ float widen_odd(uint8_t element) { return widen(F16{static_cast<uint16_t>(element << 8)}); }
template <class T>
__device__ __forceinline__ float widen_odd(T element) {
  return widen(element);
}

// Adds NaN and infinity in V to the rows that see them, because the products had zeros there.
template <class Tiles>
__device__ __forceinline__ void add_odd(const WgmmaState& state, const WgmmaTile& tile,
                                        WgmmaRows<Tiles::kValueDims>& rows) {
  using Element = typename Tiles::Element;
  const AttendCall& call = state.call->attend;
  const kvc_backend_layer& layer = call.layer;
  const WgmmaFixed& fixed = *state.fixed;
  PageCursor cursor = pages_of_item(&call.plan.arrays.tables, state.item);
#pragma unroll 1
  for (int32_t i = 0; i < Tiles::kKeys; ++i) {
    if (tile.odd[i] == 0) continue;
    const int32_t key = tile.begin + i;
    bool sees[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = rows.first + half * 8;
      sees[half] = row < state.rows && sees_key(&fixed.tree, &fixed.masks[row], key);
    }
    if (!sees[0] && !sees[1]) continue;
    const int64_t page = page_at(&cursor, key / layer.page_size);
    const unsigned char* const row = static_cast<const unsigned char*>(layer.v.data) +
                                     page * layer.v.page_stride_bytes + state.block.head * layer.v.head_stride_bytes +
                                     key % layer.page_size * layer.v.slot_stride_bytes;
    const Element* const values = reinterpret_cast<const Element*>(row) + state.lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < Tiles::kValueDims / 4; ++j) {
      const Element element = values[j / 2 * 8 + j % 2];
      if (!is_odd(stored_type(layer), element)) continue;
      if (sees[0]) rows.o[j / 2 * 4 + j % 2] += widen_odd(element);
      if (sees[1]) rows.o[j / 2 * 4 + 2 + j % 2] += widen_odd(element);
    }
  }
}

// Goes through all keys of the item. S of tile t + 1 is started together with P V of tile t; each is waited for
// separately.
template <class Tiles>
__device__ __forceinline__ void compute_tiles(const WgmmaState& state, int32_t row0,
                                              WgmmaRows<Tiles::kValueDims>& rows) {
  WgmmaFixed& fixed = *state.fixed;
  const WgmmaShape& shape = state.call->shape;
  const float scale = state.call->attend.exp2_scale;
  const uint32_t shared = shared_address(state.shared);
  const uint32_t q = shared + static_cast<uint32_t>(shape.q_at + row0 * kPanelPitch);
  const uint32_t k = shared + static_cast<uint32_t>(shape.k_at), v = shared + static_cast<uint32_t>(shape.v_at);
  float s[Tiles::kKeys / 2], alpha[2];
  uint32_t p[Tiles::kKeys / kMmaDepth][4];
  const auto wait_values = [&](int32_t t) {
    if (!Tiles::kRaw) wait_phase(&fixed.v_full[Tiles::slot(t)], Tiles::full(t));
    wait_phase(&fixed.v_ready[Tiles::slot(t)], Tiles::full(t));
  };
  const auto end_values = [&](int32_t t) {
    const WgmmaTile& tile = Tiles::of(state, t);
    if (tile.has_odd != 0) add_odd<Tiles>(state, tile, rows);
    leave_slot(state, &fixed.v_empty[Tiles::slot(t)]);
  };

  wait_phase(&fixed.k_full[0], 0);
  if (Tiles::of(state, 0).begin < 0) return;
  begin_products();
  begin_scores<Tiles>(q, k, s);
  wait_products<0>();
  hold_results(s);
  leave_slot(state, &fixed.k_empty[0]);
  int32_t t = 0;
  for (;; ++t) {
    score_tile(state, Tiles::of(state, t).begin, Tiles::of(state, t).is_full != 0, rows.first, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      alpha[half] = soften_row_of(scale, largest_of_row(s, half, rows.m[half]), half, s, rows);
    }
    wait_products<0>();
    hold_results(rows.o);
    if (t > 0) end_values(t - 1);
#pragma unroll
    for (int i = 0; i < Tiles::kValueDims / 2; ++i) rows.o[i] *= alpha[i / 2 % 2];
    pack_tile<typename Tiles::Type>(s, p);
    const int32_t next = Tiles::slot(t + 1);
    wait_phase(&fixed.k_full[next], Tiles::full(t + 1));
    if (Tiles::of(state, t + 1).begin < 0) break;
    begin_products();
    begin_scores<Tiles>(q, k + static_cast<uint32_t>(next * Tiles::kKeyBytes), s);
    wait_values(t);
    begin_products();
    begin_values<Tiles>(p, v + static_cast<uint32_t>(Tiles::slot(t) * Tiles::kValueBytes), rows.o);
    wait_products<1>();
    hold_results(s);
    leave_slot(state, &fixed.k_empty[next]);
  }
  wait_values(t);
  begin_products();
  begin_values<Tiles>(p, v + static_cast<uint32_t>(Tiles::slot(t) * Tiles::kValueBytes), rows.o);
  wait_products<0>();
  hold_results(rows.o);
  end_values(t);
}

// The work of a consumer warpgroup.
template <class Tiles>
__device__ __forceinline__ void compute_rows(const WgmmaState& state, int32_t row0) {
  WgmmaRows<Tiles::kValueDims> rows = {};
  rows.m[0] = rows.m[1] = -INFINITY;
  rows.first = row0 + state.thread % kWarpgroupThreads / kWarpSize * kMmaRows + state.lane / 4;
  compute_tiles<Tiles>(state, row0, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = sum_of_row(rows.l[half]);
    if (rows.first + half * 8 < state.rows) finish_wgmma_row<Tiles::kValueDims>(state, rows, half, 0, sum);
  }
}

template <class Tiles>
__device__ __forceinline__ void attend_by_warpgroups(const WgmmaCall& call) {
  WgmmaState state;
  if (!begin_wgmma_block(call, &state)) return;
  begin_wgmma_rows<Tiles>(state);
  load_wgmma_queries<Tiles>(state);
  __syncthreads();
  if (state.warp < kWarpgroupThreads / kWarpSize) {
    give_registers<kRegistersToBring>();
    if (state.warp == 0) {
      bring_tiles<Tiles>(state);
    } else {
      convert_tiles<Tiles>(state);
    }
  } else {
    take_registers<kRegistersToCompute>();
    const int32_t row0 = (state.thread / kWarpgroupThreads - 1) * kWarpgroupRows;
    if (row0 < state.rows) compute_rows<Tiles>(state, row0);
  }
}

// Only images of one architecture have the instructions. Others have an empty kernel (has_wgmma_image).
template <class T, int kDims, int kValueDims, int kStoredBits>
__global__ void __launch_bounds__(kWgmmaThreads, 1) attend_wgmma_kernel(const __grid_constant__ WgmmaCall call) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_by_warpgroups<WgmmaTiles<T, kDims, kValueDims, kStoredBits>>(call);
#endif
}

// dims: those of K. Those of V follow from them (has_wgmma_dims).
template <class T>
WgmmaKernel wgmma_kernel_of(int32_t dims, bool raw) {
  if (raw) return dims == 64 ? attend_wgmma_kernel<T, 64, 64, 8> : attend_wgmma_kernel<T, 128, 128, 8>;
  return dims == 64    ? attend_wgmma_kernel<T, 64, 64, 16>
         : dims == 128 ? attend_wgmma_kernel<T, 128, 128, 16>
         : dims == 192 ? attend_wgmma_kernel<T, 192, 128, 16>
                       : attend_wgmma_kernel<T, 256, 256, 16>;
}
WgmmaKernel wgmma_kernel_of_f16(int32_t dims, bool raw);
WgmmaKernel wgmma_kernel_of_bf16(int32_t dims, bool raw);

}  // namespace kvc::kernels::cuda

// Attention by Hopper's warpgroup products (sm_90a). A thread block computes up to 128 rows of one kv head over the
// keys of an item. A row is a pair of a query and a query head. A tile has 128 keys, or 64 if V has 256 dims.
//
// The block has three warpgroups. The first has the producer warp, which loads tiles (attend/wgmma/tiles.cuh), and
// three warps that change tiles before products read them (attend/wgmma/convert.cuh). These warps need few registers.
// The other two warpgroups are the consumers, with 64 rows each. A consumer computes S = Q K^T from shared memory into
// registers. Then it computes the online softmax in registers, and O += P V with P from registers.
//
// Products run asynchronously. S of a tile and P V of the previous tile are started together, and the softmax of S runs
// while P V is computed. The two consumers start products alternately, so the softmax of one also overlaps with
// products of the other.
//
// Lower bounds: 2 (D + Dv) operations for each row and key. K and V come from L2 once for 128 rows. With 16-bit
// elements, that is 128 operations a byte. The last block of the plan starts first, because with a causal mask it has
// the most keys.
//
// attend/wgmma/plan.h describes shared memory. For tiles of `keys` keys, a thread has Dv / 2 registers for o, keys / 2
// for S, and keys / 4 for P.
//
// Keys that a row does not see may hold NaN. The scores of such keys are replaced by -inf. If some row does not
// see every key of a tile, NaN and infinity in the tile's V are replaced by zero. After the product, the replaced
// values are read from global memory again, and added to the rows that see their keys.
//
// 8-bit K and V are loaded as stored, and dequantised in shared memory (attend/wgmma/convert.cuh), once for 128 rows.
// The block then has a fourth warpgroup, which also changes tiles. Scores and results are multiplied by the scales of
// heads.
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

// The registers of a thread in a consumer warpgroup (kRegistersToCompute) and in the other warpgroups
// (kRegistersToBring). At launch, each thread has 168 registers in a block of three warpgroups, or 128 in a
// block of four.
template <bool kRaw>
constexpr int kRegistersToCompute = kRaw ? 208 : 224;
template <bool kRaw>
constexpr int kRegistersToBring = kRaw ? 48 : 56;
static_assert(kWarpgroups * kRegistersToCompute<false> + kRegistersToBring<false> <= 3 * 168);
static_assert(kWarpgroups * kRegistersToCompute<true> + 2 * kRegistersToBring<true> <= 4 * 128);

// Returns x, which must be the same in all lanes. This shows the compiler that it can keep x, and values computed from
// x, in registers that the warp shares.
__device__ __forceinline__ uint32_t of_warp(uint32_t x) { return __shfl_sync(kAllLanes, x, 0); }
__device__ __forceinline__ int32_t of_warp(int32_t x) { return __shfl_sync(kAllLanes, x, 0); }

// Stops the compiler from computing values from x before the loop, because no registers are free for them.
__device__ __forceinline__ void forget(uint64_t& x) {
#if defined(__CUDACC__)
  asm volatile("" : "+l"(x));
#else
  static_cast<void>(x);
#endif
}

// The two consumers start products alternately. A block of at most kWarpgroupRows rows has one consumer, which does not
// wait. Barrier kStartBarrier + w completes when warpgroup w is about to start products and the other warpgroup has
// started its products.
constexpr int kQueryBarrier = 1, kStartBarrier = kQueryBarrier + kWarpgroups;
struct Alternation {
  int warpgroup;  // 0 or 1
  bool has_other;
  __device__ __forceinline__ void wait_for_other() const {
    if (has_other) sync_threads_of<kWarpgroups * kWarpgroupThreads>(kStartBarrier + warpgroup);
  }
  __device__ __forceinline__ void let_other_start() const {
    if (has_other) notify_threads_of<kWarpgroups * kWarpgroupThreads>(kStartBarrier + 1 - warpgroup);
  }
};

// Starts the products S = Q K^T of the warpgroup's rows and of the keys of one tile, as one group of asynchronous
// products. q, k: the descriptors of the operands.
template <class Tiles>
__device__ __forceinline__ void begin_scores(uint64_t q, uint64_t k, float (&s)[Tiles::kKeys / 2]) {
#pragma unroll
  for (int step = 0; step < Tiles::kDims / kMmaDepth; ++step) {
    const int32_t panel = step / 4, within = step % 4 * kMmaDepth * 2;
    multiply_shared(typename Tiles::Type{}, s, later_operand(q, panel * Tiles::kQueryPanelBytes + within),
                    later_operand(k, panel * Tiles::kPanelBytes + within), step > 0);
  }
  close_products();
}

// Starts the products of o += P V, as one group. v: the descriptor of V.
template <class Tiles>
__device__ __forceinline__ void begin_values(const uint32_t (&p)[Tiles::kKeys / kMmaDepth][4], uint64_t v,
                                             float (&o)[Tiles::kValueDims / 2]) {
#pragma unroll
  for (int step = 0; step < Tiles::kKeys / kMmaDepth; ++step) {
    multiply_registers(typename Tiles::Type{}, o, p[step], later_operand(v, step * kMmaDepth * kPanelPitch));
  }
  close_products();
}

// Converts P to the left operand of a product: two result fragments form one operand (attend/mma/layout.h).
template <class T, int kScores>
__device__ __forceinline__ void pack_tile(const float (&s)[kScores], uint32_t (&p)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) p[i / 4][i % 4] = pack(T{}, s[i * 2], s[i * 2 + 1]);
}

// is_odd: whether an element in the pool of V is NaN or infinity. dequantise_odd: such an element as a float. An 8-bit
// element is read as the upper byte of a float16. This is exact for e5m2. It also gives NaN for the NaN of e4m3, in
// which all bits except the sign are set.
template <class T>
__device__ __forceinline__ bool is_odd(Type, T element) {
  return not_finite(T{}, element.bits) != 0;
}
__device__ __forceinline__ bool is_odd(Type stored, uint8_t element) { return odd_bytes(stored, element) != 0; }
__device__ __forceinline__ float dequantise_odd(uint8_t element) {
  return to_float(F16{static_cast<uint16_t>(element << 8)});
}
template <class T>
__device__ __forceinline__ float dequantise_odd(T element) {
  return to_float(element);
}

// Adds NaN and infinity in V to the rows that see them. The products had zeros in their places.
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
      if (sees[0]) rows.o[j / 2 * 4 + j % 2] += dequantise_odd(element);
      if (sees[1]) rows.o[j / 2 * 4 + 2 + j % 2] += dequantise_odd(element);
    }
  }
}

// Computes all tiles that the block's rows see. The products S of tile t + 1 and P V of tile t are started together,
// but each has its own wait. warpgroup: the number of the consumer, 0 or 1.
template <class Tiles>
__device__ __forceinline__ void compute_tiles(const WgmmaState& state, int warpgroup,
                                              WgmmaRows<Tiles::kValueDims>& rows) {
  WgmmaFixed& fixed = *state.fixed;
  const WgmmaShape& shape = state.call->shape;
  const Alternation starts = {warpgroup, state.rows > kWarpgroupRows};
  const float scale = state.call->attend.exp2_scale;
  const uint32_t shared = of_warp(shared_address(state.shared));
  const uint32_t q_at = shared + static_cast<uint32_t>(shape.q_at + warpgroup * kWarpgroupRows * kPanelPitch);
  uint64_t q = rows_descriptor(q_at);
  const uint64_t k = rows_descriptor(shared + static_cast<uint32_t>(shape.k_at));
  const uint64_t v = columns_descriptor(shared + static_cast<uint32_t>(shape.v_at), Tiles::kKeys);
  float s[Tiles::kKeys / 2], alpha[2];
  uint32_t p[Tiles::kKeys / kMmaDepth][4];
  const auto wait_values = [&](int32_t t) {
    const int32_t slot = Tiles::value_slot(t);
    if (!Tiles::kRaw) wait_phase(&fixed.v_full[slot], Tiles::value_full(t));
    wait_phase(&fixed.v_ready[slot], Tiles::value_full(t));
  };
  const auto v_of = [&](int32_t t) { return later_operand(v, Tiles::value_slot(t) * Tiles::kValueBytes); };
  const auto end_values = [&](int32_t t) {
    const WgmmaTile& tile = Tiles::of(state, t);
    if (tile.has_odd != 0) add_odd<Tiles>(state, tile, rows);
    leave_slot(state, &fixed.v_empty[Tiles::value_slot(t)]);
  };

  wait_phase(&fixed.k_full[0], 0);
  if (Tiles::of(state, 0).begin < 0) return;
  if (warpgroup == 1) starts.let_other_start();  // warpgroup 0 starts first
  starts.wait_for_other();
  begin_products();
  begin_scores<Tiles>(q, k, s);
  starts.let_other_start();
  wait_products<0>();
  hold_results(s);
  leave_slot(state, &fixed.k_empty[0]);
  int32_t t = 0;
  for (;; ++t) {
    const WgmmaTile& tile = Tiles::of(state, t);
    score_tile(state, tile.begin, tile.is_full != 0, rows.first, s);
    softmax_rows(scale, s, rows, alpha);
    wait_products<0>();
    hold_results(rows.o);
    if (t > 0) end_values(t - 1);
#pragma unroll
    for (int i = 0; i < Tiles::kValueDims / 2; ++i) rows.o[i] *= alpha[i / 2 % 2];
    pack_tile<typename Tiles::Type>(s, p);
    const int32_t next = Tiles::slot(t + 1);
    wait_phase(&fixed.k_full[next], Tiles::full(t + 1));
    if (of_warp(Tiles::of(state, t + 1).begin) < 0) break;
    wait_values(t);
    if (Tiles::kDims > 128 || Tiles::kRaw) forget(q);
    starts.wait_for_other();
    begin_products();
    begin_scores<Tiles>(q, later_operand(k, next * Tiles::kKeyBytes), s);
    begin_values<Tiles>(p, v_of(t), rows.o);
    starts.let_other_start();
    wait_products<1>();
    hold_results(s);
    leave_slot(state, &fixed.k_empty[next]);
  }
  wait_values(t);
  begin_products();
  begin_values<Tiles>(p, v_of(t), rows.o);
  if (warpgroup == 0)
    starts.wait_for_other();  // for the last notification of warpgroup 1, so that each notification has a wait
  wait_products<0>();
  hold_results(rows.o);
  end_values(t);
}

// Does the work of a consumer warpgroup.
template <class Tiles>
__device__ __forceinline__ void compute_rows(const WgmmaState& state, int warpgroup) {
  WgmmaRows<Tiles::kValueDims> rows = {};
  rows.m[0] = rows.m[1] = -INFINITY;
  rows.first = warpgroup * kWarpgroupRows + state.thread % kWarpgroupThreads / kWarpSize * kMmaRows + state.lane / 4;
  compute_tiles<Tiles>(state, warpgroup, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = rows.l[half] + __shfl_xor_sync(kAllLanes, rows.l[half], 2),
                rest = rest_of_origin(state.call->attend.exp2_scale, rows.m[half]);
    if (rows.first + half * 8 < state.rows) finish_wgmma_row<Tiles::kValueDims>(state, rows, half, 0, sum, rest);
  }
}

template <class Tiles>
__device__ __forceinline__ void attend_by_warpgroups(const WgmmaCall& call) {
  WgmmaState state;
  if (!begin_wgmma_block(call, &state)) return;
  begin_wgmma_rows<Tiles>(state);
  __syncthreads();
  const int warpgroup = of_warp(state.thread / kWarpgroupThreads) - 1;
  if (warpgroup < 0 || warpgroup >= kWarpgroups) {
    give_registers<kRegistersToBring<Tiles::kRaw>>();
    if (state.warp == 0) {
      bring_tiles<Tiles>(state);
    } else {
      convert_tiles<Tiles>(state);
    }
  } else {
    take_registers<kRegistersToCompute<Tiles::kRaw>>();
    const int row0 = warpgroup * kWarpgroupRows;
    if (row0 >= state.rows) return;
    load_wgmma_queries<Tiles>(state, row0);
    sync_threads_of<kWarpgroupThreads>(kQueryBarrier + warpgroup);
    compute_rows<Tiles>(state, warpgroup);
  }
}

// Only code compiled for sm_90a has these instructions. In code for other architectures, the kernel is empty
// (has_wgmma_image).
template <class T, int kDims, int kValueDims, int kStoredBits>
__global__ void __launch_bounds__(wgmma_threads(kStoredBits == 8), 1)
    attend_wgmma_kernel(const __grid_constant__ WgmmaCall call) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_by_warpgroups<WgmmaTiles<T, kDims, kValueDims, kStoredBits>>(call);
#endif
}

// dims: the dims of K, from which the dims of V follow (has_wgmma_dims).
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

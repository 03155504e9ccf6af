// Attention by Hopper's warpgroup products (sm_90a): a block of three warpgroups over up to 128 rows (query, head of
// the group) of one kv head and an item's keys, 128 at a time (64 where heads are wide).
//
// The first warpgroup brings tiles (attend_wgmma_tiles.cuh), with few registers. The two others have 64 rows each: S =
// Q K^T from shared memory into registers, the online softmax there, and O += P V with P from registers as it lies.
// Products run in the background: those of S of a tile and of O of the tile before are begun together, and the softmax
// of the one is computed while the other is multiplied. The two warpgroups do not wait for each other, so one's softmax
// is under the other's products too.
//
// Floors: 2 (D + Dv) operations a row and key; K and V come from L2 once for 128 rows, 128 operations a byte. Blocks
// are taken last first: of causal queries those with the most keys.
//
// Shared memory: attend_wgmma_plan.h. Registers: o takes Dv / 2 of a thread, S and P keys / 2 and / 4.
//
// NaN in keys that a row does not see: their scores are replaced. Of tiles that not all rows see whole, elements of V
// that are no numbers are zeros, and added to the rows that do see them, from where they are stored.
//
// K and V of 8 bits come as stored and are widened in shared memory (attend_wgmma_convert.cuh), for 128 rows at once.
// Their scales, of heads, go into scores and results.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend_wgmma_convert.cuh"

namespace kvc::kernels::cuda {

// Registers of a thread: what a block begins with is kWgmmaThreads times 168.
constexpr int kRegistersToBring = 56, kRegistersToCompute = 224;
static_assert(kRegistersToBring + kWarpgroups * kRegistersToCompute <= (1 + kWarpgroups) * 168);

// A thread's part of its warpgroup's rows: of two of them, `first` and 8 behind it, columns lane % 4 * 2 + {0, 1} of
// every 8 (wgmma_layout.h).
template <class Tiles>
struct WgmmaRows {
  float o[Tiles::kValueDims / 2];
  float m[2], l[2];  // l: of the thread's keys alone
  int32_t first;
};

// S of the warpgroup's rows and the keys in a slot; begun, and a group of its own.
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

// o += P V, likewise.
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

// Softcap and ALiBi of one row's scores.
template <int kScores>
__device__ __forceinline__ void apply_options(const WgmmaState& state, const WgmmaTile& tile, int32_t row, int half,
                                              float (&s)[kScores]) {
  const AttendCall& call = state.call->attend;
  const WgmmaFixed& fixed = *state.fixed;
  const float cap = static_cast<float>(call.args.softcap), slope = fixed.slopes[row];
  const int32_t first_key = tile.begin + state.lane % 4 * 2, position = fixed.masks[row].position;
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) {
    float& x = s[i / 2 * 4 + half * 2 + i % 2];
    float score = x * call.option_scale;
    if (call.args.softcap != 0.0) score = tanhf(score) * cap;
    if (slope != 0.0f) {
      const int32_t key = first_key + i / 2 * 8 + i % 2;
      score -= slope * fabsf(static_cast<float>(position - key_position(&fixed.tree, key)));
    }
    x = score;
  }
}

// -inf where a row does not see the key.
template <int kScores>
__device__ __forceinline__ void apply_mask(const WgmmaState& state, const WgmmaTile& tile, int32_t row, int half,
                                           float (&s)[kScores]) {
  const WgmmaFixed& fixed = *state.fixed;
  const int32_t first_key = tile.begin + state.lane % 4 * 2;
  int32_t begin = 0, end = 0;  // from first_key on
  uint32_t bits = ~0u;         // of the thread's keys, in their order
  if (row < state.rows) {
    const QueryMask& mask = fixed.masks[row];
    begin = mask.keys.begin - first_key;
    end = mask.keys.end - first_key;
    if (tile.begin + kScores * 2 > fixed.tree.begin) {
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

// Dot products to scores, in the units of call.exp2_scale.
template <int kScores>
__device__ __forceinline__ void score_tile(const WgmmaState& state, const WgmmaTile& tile, int32_t first_row,
                                           float (&s)[kScores]) {
  const bool has_units = state.call->has_units != 0, has_options = state.call->attend.has_options != 0;
  const bool is_full = tile.is_full != 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = first_row + half * 8;
    if (has_units) {
      const float unit = state.fixed->units[row];
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) s[i / 2 * 4 + half * 2 + i % 2] *= unit;
    }
    if (has_options) apply_options(state, tile, row, half, s);
    if (!is_full) apply_mask(state, tile, row, half, s);
  }
}

// The online softmax: s becomes p; alpha: what o is to be multiplied by.
template <class Tiles, int kScores>
__device__ __forceinline__ void soften_tile(float scale, float (&s)[kScores], WgmmaRows<Tiles>& rows,
                                            float (&alpha)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = rows.m[half];
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) largest = fmaxf(largest, s[i / 2 * 4 + half * 2 + i % 2]);
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    alpha[half] = rows.m[half] == largest ? 1.0f : fast_exp2((rows.m[half] - largest) * scale);
    const float origin = largest == -INFINITY ? 0.0f : largest;  // nothing seen yet: every p is 0
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) {
      float& p = s[i / 2 * 4 + half * 2 + i % 2];
      p = fast_exp2((p - origin) * scale);
      sum += p;
    }
    rows.m[half] = largest;
    rows.l[half] = fmaf(rows.l[half], alpha[half], sum);
  }
}

// P as the product's left operand: two results side by side are one (mma_layout.h).
template <class T, int kScores>
__device__ __forceinline__ void pack_tile(const float (&s)[kScores], uint32_t (&p)[kScores / 8][4]) {
#pragma unroll
  for (int i = 0; i < kScores / 2; ++i) p[i / 4][i % 4] = pack(T{}, s[i * 2], s[i * 2 + 1]);
}

// Whether an element of V's pool is no number, and it as a float: the upper byte of a float16 (e5m2), or one whose bits
// are all set (e4m3), which as such a byte is NaN too.
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

// Adds elements of V that are no numbers to the rows that see them; the products had zeros there.
template <class Tiles>
__device__ __forceinline__ void add_odd(const WgmmaState& state, const WgmmaTile& tile, WgmmaRows<Tiles>& rows) {
  using Element = typename Tiles::Element;
  const AttendCall& call = state.call->attend;
  const kvc_backend_layer& layer = call.layer;
  const WgmmaFixed& fixed = *state.fixed;
  PageCursor cursor = pages_of_item(&call.tables, state.item);
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
    const Element* const values = static_cast<const Element*>(layer.v.data) + page * layer.v.page_stride +
                                  state.block.head * layer.v.head_stride + key % layer.page_size * layer.v.slot_stride +
                                  state.lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < Tiles::kValueDims / 4; ++j) {
      const Element element = values[j / 2 * 8 + j % 2];
      if (!is_odd(type_of(layer.dtype), element)) continue;
      if (sees[0]) rows.o[j / 2 * 4 + j % 2] += widen_odd(element);
      if (sees[1]) rows.o[j / 2 * 4 + 2 + j % 2] += widen_odd(element);
    }
  }
}

// What a warp does when a slot is done with.
__device__ __forceinline__ void leave_slot(const WgmmaState& state, uint64_t* empty) {
  __syncwarp();
  if (state.lane == 0) arrive(empty);
}

// All keys of the item. S of tile t + 1 is begun together with P V of tile t, and waited for alone.
template <class Tiles>
__device__ __forceinline__ void compute_tiles(const WgmmaState& state, int32_t row0, WgmmaRows<Tiles>& rows) {
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
    if (tile.has_odd != 0) add_odd(state, tile, rows);
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
    score_tile(state, Tiles::of(state, t), rows.first, s);
    soften_tile(scale, s, rows, alpha);
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

// A row's part of the thread, times `scale`: pairs of every 8 columns, from element `at` on.
template <class Out, class Tiles>
__device__ __forceinline__ void store_row(Out* data, int64_t at, const WgmmaRows<Tiles>& rows, int half, float scale,
                                          bool is_empty) {
  Out* const target = data + at;
  const bool aligned = reinterpret_cast<uint64_t>(target) % (2 * sizeof(Out)) == 0;
#pragma unroll
  for (int i = 0; i < Tiles::kValueDims / 8; ++i) {
    Out pair[2];
    narrow(is_empty ? 0.0f : rows.o[i * 4 + half * 2] * scale, &pair[0]);
    narrow(is_empty ? 0.0f : rows.o[i * 4 + half * 2 + 1] * scale, &pair[1]);
    if (aligned) {
      memcpy(__builtin_assume_aligned(static_cast<void*>(target + i * 8), 2 * sizeof(Out)), pair, sizeof pair);
    } else {
      target[i * 8] = pair[0];
      target[i * 8 + 1] = pair[1];
    }
  }
}

// Writes a row's state to the partials, or normalised to the output. sum: l of all the row's keys.
template <class Tiles>
__device__ __forceinline__ void finish_wgmma_row(const WgmmaState& state, const WgmmaRows<Tiles>& rows, int half,
                                                 float sum) {
  constexpr int32_t kDims = Tiles::kValueDims;
  const WgmmaFixed& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const int32_t r = rows.first + half * 8, pair = state.lane % 4 * 2;
  const QueryPlace place = fixed.places[r];
  const int32_t head = state.block.head * state.group + (state.block.row_begin + r) % state.group;
  const NaturalMaximum natural = natural_maximum(call, rows.m[half], sum);
  const float l = sum * natural.correction;
  const float unit = natural.correction * (head_scale(&call.layer.v_scales, state.block.head) *
                                           row_factor(&args.v_scales, place.row, state.block.head));
  if (place.partial_offset >= 0) {
    const int64_t states = place.states, index = place.first_state + head;
    float* const partial = args.partials + place.partial_offset;
    store_row(partial, index * kDims + pair, rows, half, unit, l == 0.0f);
    if (pair == 0) {
      partial[states * kDims + index] = natural.m;
      partial[states * kDims + states + index] = l;
    }
    return;
  }
  const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
  const FinalState final = final_state(static_cast<double>(natural.m), static_cast<double>(l), sink);
  const float scale = unit * static_cast<float>(final.scale);
  const int64_t base = out_element(args, place.row, place.token, head) + pair;
  const auto store = [&](auto* data) { store_row(data, base, rows, half, scale, l == 0.0f); };
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
  if (pair == 0 && args.lse != nullptr) args.lse[lse_element(args, place.row, place.token, head)] = final.lse;
}

// What a warpgroup of those that compute does.
template <class Tiles>
__device__ __forceinline__ void compute_rows(const WgmmaState& state, int32_t row0) {
  WgmmaRows<Tiles> rows = {};
  rows.m[0] = rows.m[1] = -INFINITY;
  rows.first = row0 + state.thread % kWarpgroupThreads / kWarpSize * kMmaRows + state.lane / 4;
  compute_tiles(state, row0, rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.l[half];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    if (rows.first + half * 8 < state.rows) finish_wgmma_row(state, rows, half, sum);
  }
}

// The block that a thread block does, the last one first; false: nothing.
__device__ __forceinline__ bool find_wgmma_block(const AttendCall& call, AttendBlock* block) {
  const int64_t blocks = call.live_blocks != nullptr ? *call.live_blocks : static_cast<int64_t>(gridDim.x);
  if (blockIdx.x >= blocks) return false;
  *block = block_at(call, blocks - 1 - blockIdx.x);
  return block->row_begin < block->row_end;
}

__device__ __forceinline__ unsigned char* aligned_shared_bytes() {
#if defined(__CUDACC__)
  extern __shared__ __align__(1024) unsigned char panels[];  // where the swizzle's pattern begins
  return panels;
#else
  return cuda_emulation::shared_memory();
#endif
}

template <class Tiles>
__device__ __forceinline__ void attend_by_warpgroups(const WgmmaCall& call) {
  WgmmaState state;
  state.call = &call;
  state.shared = aligned_shared_bytes();
  state.fixed = reinterpret_cast<WgmmaFixed*>(state.shared);
  if (!find_wgmma_block(call.attend, &state.block)) return;
  state.item = call.attend.args.items + state.block.item;
  state.group = call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads;
  state.rows = state.block.row_end - state.block.row_begin;
  state.thread = static_cast<int32_t>(threadIdx.x);
  state.warp = state.thread / kWarpSize;
  state.lane = state.thread % kWarpSize;
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

// The body is for one arch: it has the instructions. Others' images have an empty kernel (has_wgmma_image).
template <class T, int kDims, int kValueDims, int kStoredBits>
__global__ void __launch_bounds__(kWgmmaThreads, 1) attend_wgmma_kernel(const __grid_constant__ WgmmaCall call) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_by_warpgroups<WgmmaTiles<T, kDims, kValueDims, kStoredBits>>(call);
#endif
}

using WgmmaKernel = void (*)(WgmmaCall);

// dims: of K; those of V follow (has_wgmma_dims).
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

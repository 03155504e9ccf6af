// Attention of few rows (decode) on tensor cores (mma.m16n8k16), with float32 sums. A thread block computes up to 16
// rows of one kv head over the keys of an item. A row is a pair of a query and a query head.
//
// The kernel streams K and V. Each warp has its own tiles of 16 or 32 keys, and a ring of `stages` tiles in shared
// memory. The loop over tiles has no barrier of the block, because a warp waits only for its own copies. While a warp
// computes a tile, the copies of the next stages - 1 tiles are in flight. At the same time, the warp reads the page ids
// of the tile after those. Each warp has its own softmax state. At the end, the states of the warps are merged like the
// states of split items.
//
// A warp computes S = Q K^T of 16 rows in registers, then the online softmax, then O += P V. P stays in registers,
// because two C fragments are one A fragment (attend/mma/layout.h). For K and V of 8 and 4 bits,
// attend/decode/bytes.cuh, blocks.cuh and nibbles.cuh have these steps.
//
// Lower bound: D + Dv elements are read once for each key. The products take little time compared with that.
//
// Keys that a row does not see may hold NaN. Scores are masked only in tiles of which some row does not see every key.
// In these tiles, NaN and infinity in V are replaced by zero, because 0 * NaN is NaN. After the product, the replaced
// values are added to the rows that see their keys.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/decode/bytes.cuh"
#include "kernels/cuda/attend/decode/nibbles.cuh"
#include "kernels/cuda/attend/decode/queries.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/layout.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// ---- Products -------------------------------------------------------------------------------------

// Computes S of 16 rows and the tile's 16 keys.
template <class Kind>
__device__ __forceinline__ void multiply_decode_keys(const unsigned char* q, const unsigned char* k, int32_t lane,
                                                     float (&s)[2][4]) {
  using Q = typename Kind::Q;
  constexpr int kPitch = Kind::kKeyPitch, kQueryPitch = Kind::kDims * 2;
#pragma unroll
  for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = 0.0f;
  const int32_t row = lane / 16 * 8 + lane % 8, first = lane / 8 % 2;
#pragma unroll(Kind::kDims > 128 ? 2 : 8)  // unrolling more would spill registers
  for (int step = 0; step < Kind::kDims / 16; ++step) {
    uint32_t a[4], b[4];
    load_matrices(a, q + tile_place<kQueryPitch>(lane % 16, step * 2 + lane / 16));
    load_matrices(b, k + tile_place<kPitch>(row, step * 2 + first));
    multiply(Q{}, s[0], a, b[0], b[1]);
    multiply(Q{}, s[1], a, b[2], b[3]);
  }
}

// The dim of element e of fragment i of o.
template <class Kind>
__device__ __forceinline__ int32_t dim_of_sum(int i, int e, int32_t lane) {
  return Kind::kNibbles ? dim_of_nibble_sum(i, e, lane) : i * 8 + lane % 4 * 2 + e % 2;
}

// Adds NaN and infinity in V to the rows that see them. The products had zeros in their places.
template <class Kind>
__device__ __forceinline__ void add_not_finite_values(const DecodeFixed& fixed, const unsigned char* v, int32_t begin,
                                                      int32_t lane, DecodeSums<Kind::kValueDims>& sums) {
  using P = typename Kind::P;
#pragma unroll 1
  for (int32_t key = 0; key < kDecodeKeys; ++key) {
    const bool sees[2] = {sees_decode_key(fixed, lane / 4, begin + key),
                          sees_decode_key(fixed, lane / 4 + 8, begin + key)};
#pragma unroll
    for (int i = 0; i < Kind::kValueDims / 8; ++i) {
      uint32_t pair;
      memcpy(&pair, v + tile_place<Kind::kValuePitch>(key, i) + lane % 4 * 4, sizeof pair);
      const uint32_t found = not_finite(P{}, pair);
      if (found == 0) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const P element = {static_cast<uint16_t>(pair >> (e % 2 * 16))};
        if (sees[e / 2] && ((found >> (e % 2 * 16)) & 0x8000u) != 0) sums.o[i][e] += to_float(element);
      }
    }
  }
}

// o += P V. P is rounded to the type of the product. kRare: some row does not see some key. Then NaN and infinity in V
// count as zero. Returns 0 if there were none.
template <class Kind, bool kRare>
__device__ __forceinline__ uint32_t multiply_decode_values(const unsigned char* v, int32_t lane, const float (&s)[2][4],
                                                           DecodeSums<Kind::kValueDims>& sums) {
  using P = typename Kind::P;
  const uint32_t a[4] = {pack(P{}, s[0][0], s[0][1]), pack(P{}, s[0][2], s[0][3]), pack(P{}, s[1][0], s[1][1]),
                         pack(P{}, s[1][2], s[1][3])};
  uint32_t found = 0;
#pragma unroll
  for (int chunk = 0; chunk < Kind::kValuePitch / 16; chunk += 2) {
    uint32_t four[4];
    load_transposed(four, v + tile_place<Kind::kValuePitch>(lane % 16, chunk + lane / 16));
    if (kRare) found |= take_not_finite<P>(four);
    multiply(P{}, sums.o[chunk], a, four[0], four[1]);
    multiply(P{}, sums.o[chunk + 1], a, four[2], four[3]);
  }
  return found;
}

// ---- Scores ---------------------------------------------------------------------------------------

__device__ __forceinline__ float quad_total(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// The online softmax over one tile. s becomes p.
template <int kDims>
__device__ __forceinline__ void softmax_decode_scores(float scale, float (&s)[2][4], DecodeSums<kDims>& sums) {
  float alpha[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = fmaxf(fmaxf(s[0][half * 2], s[0][half * 2 + 1]), fmaxf(s[1][half * 2], s[1][half * 2 + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2)), sums.m[half]);
    alpha[half] = sums.m[half] == largest ? 1.0f : fast_exp2((sums.m[half] - largest) * scale);
    const float origin = largest == -INFINITY ? 0.0f : largest;  // while no key was seen, every p is 0
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& p = s[i / 2][half * 2 + i % 2];
      p = fast_exp2((p - origin) * scale);
      sum += p;
    }
    sums.m[half] = largest;
    sums.l[half] = fmaf(sums.l[half], alpha[half], sum);
  }
  if (__ballot_sync(kAllLanes, alpha[0] != 1.0f || alpha[1] != 1.0f) == 0)
    return;  // no maximum changed, so o stays as it is
#pragma unroll
  for (int i = 0; i < kDims / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) sums.o[i][e] *= alpha[e / 2];
  }
}

// The scale of key i of the lane's four keys of uint4. scales: those of K or of V.
__device__ __forceinline__ float lane_scale(const float* scales, int i, int32_t lane) {
  return without_zero_point(scales[i / 2 * 8 + lane % 4 * 2 + i % 2]);
}

// Computes the tile whose first key is `begin`.
template <class Kind>
__device__ __forceinline__ void compute_decode_tile(const DecodeCall& call, const DecodeFixed& fixed,
                                                    const unsigned char* q, const unsigned char* tile, int32_t begin,
                                                    int32_t lane, DecodeSums<Kind::kValueDims>& sums) {
  const unsigned char* const v = tile + kDecodeKeys * Kind::kKeyPitch;
  const float* const scales = reinterpret_cast<const float*>(tile + Kind::kScalesAt);
  const bool is_full = is_full_tile<kDecodeKeys>(fixed, begin);
  float s[2][4];
  if constexpr (Kind::kNibbles) {
    multiply_nibble_keys<Kind>(q, tile, scales, lane, s);
  } else {
    multiply_decode_keys<Kind>(q, tile, lane, s);
  }
  if (call.has_units != 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i / 4][i % 4] *= fixed.units[lane / 4 + i % 4 / 2 * 8];
  }
  const bool token_scales = Kind::kHasScales && call.has_token_scales != 0;
  if (token_scales) {
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i / 4][i % 4] *= lane_scale(scales, i / 4 * 2 + i % 2, lane);
  }
  uint32_t hidden = 0;  // a bit for each score
  if (!is_full) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
      const int32_t key = begin + i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (!sees_decode_key(fixed, lane / 4 + i % 4 / 2 * 8, key)) hidden |= 1u << i;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (((hidden >> i) & 1u) != 0) s[i / 4][i % 4] = -INFINITY;
    }
  }
  softmax_decode_scores(call.attend.exp2_scale, s, sums);
  if (token_scales) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& p = s[i / 4][i % 4];
      // Scales of keys that the row does not see may be NaN.
      p = ((hidden >> i) & 1u) != 0 ? 0.0f : p * lane_scale(scales + kDecodeKeys, i / 4 * 2 + i % 2, lane);
    }
  }
  if constexpr (Kind::kNibbles) {  // levels are finite, so p = 0 is enough to leave out a key
    multiply_nibble_values<Kind>(v, scales + kDecodeKeys, lane, s, sums);
  } else if (is_full || fixed.exact != 0) {  // if rows are exact, V of a hidden key is zeros
    multiply_decode_values<Kind, false>(v, lane, s, sums);
  } else {
    const uint32_t found = multiply_decode_values<Kind, true>(v, lane, s, sums);
    if (__ballot_sync(kAllLanes, found != 0) != 0) add_not_finite_values<Kind>(fixed, v, begin, lane, sums);
  }
}

// ---- Results --------------------------------------------------------------------------------------

// Writes the states of all warps to shared memory. o [warp][row][Dv] overwrites the tiles.
template <class Kind>
__device__ __forceinline__ void share_decode_sums(DecodeFixed& fixed, float* results, int32_t warp, int32_t lane,
                                                  const DecodeSums<Kind::kValueDims>& sums) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = lane / 4 + half * 8;
    const float l = quad_total(sums.l[half]);
    if (row >= fixed.rows) continue;
    if (lane % 4 == 0) {
      fixed.m[warp][row] = sums.m[half];
      fixed.l[warp][row] = l;
    }
    float* const o = results + (warp * kDecodeRows + row) * Kind::kValueDims;
#pragma unroll
    for (int i = 0; i < Kind::kValueDims / 8 * 2; ++i) {
      o[dim_of_sum<Kind>(i / 2, i % 2, lane)] = sums.o[i / 2][half * 2 + i % 2];
    }
  }
}

// Merges the states of the warps to one state of row r, in natural-log units. The arithmetic is the same as for the
// states of split items.
template <class Kind>
__device__ __forceinline__ void merge_decode_row(const AttendCall& call, DecodeFixed& fixed, int32_t r) {
  float m = -INFINITY, l = 0.0f;
#pragma unroll 1  // this code runs once, so it should be short rather than fast
  for (int w = 0; w < Kind::kWarps; ++w) {
    const NaturalMaximum natural = natural_maximum(call, fixed.m[w][r], fixed.l[w][r]);
    const float own = fixed.l[w][r] * natural.correction;
    MergeWeights<float> weights = {m, 1.0f, 0.0f};  // those of an empty state
    if (own != 0.0f)
      weights = l == 0.0f ? MergeWeights<float>{natural.m, 0.0f, 1.0f} : merge_weights<float>(m, natural.m);
    m = weights.m;
    l = l * weights.a + own * weights.b;
    for (int i = 0; i < w; ++i) fixed.factors[i][r] *= weights.a;
    fixed.factors[w][r] = natural.correction * weights.b;
  }
  fixed.m[0][r] = m;
  fixed.l[0][r] = l;
}

// Writes element `index` of the output.
__device__ __forceinline__ void store_result(Type type, void* out, int64_t index, float x) {
  if (type == Type::kF32) {
    static_cast<float*>(out)[index] = x;
  } else {
    const uint32_t pair = type == Type::kF16 ? pack(F16{}, x, x) : pack(Bf16{}, x, x);
    static_cast<uint16_t*>(out)[index] = static_cast<uint16_t>(pair);
  }
}

// Writes the state of row r to the partials, or the normalised row to the output.
template <class Kind>
__device__ __forceinline__ void finish_decode_row(const AttendCall& call, const DecodeFixed& fixed,
                                                  const float* results, int32_t r, int32_t lane) {
  constexpr int kDims = Kind::kValueDims;
  const kvc_backend_attend& args = call.args;
  const QueryPlace& place = fixed.places[r];
  const int32_t head = fixed.heads[r];
  const float m = fixed.m[0][r], l = fixed.l[0][r];
  // The scales of V, except scales of tokens.
  const float unit = head_scale(&call.layer.v_scales, fixed.block.head) *
                     row_factor(&args.v_scales, place.row, fixed.block.head) * (Kind::kFloat4 ? kFloat4Unit : 1.0f);
  const bool is_part = place.partial_offset >= 0;
  const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
  const float scale = is_part ? unit : unit * final_scale(m, l, sink);
  const int64_t states = place.states, index = place.first_state + head;
  float* const partial = call.plan.partials + (is_part ? place.partial_offset : 0);
  const int64_t base = out_element(args, place.row, place.token, head);
  const Type type = type_of(args.out.dtype);
  const auto merged = [&](int32_t d) {
    float o = 0.0f;
#pragma unroll
    for (int w = 0; w < Kind::kWarps; ++w) {
      o = fmaf(results[(w * kDecodeRows + r) * kDims + d], fixed.factors[w][r], o);
    }
    return o;
  };
  const auto put = [&](int32_t d, float x) {
    const float o = l == 0.0f ? 0.0f : x * scale;
    if (is_part) {
      partial[index * kDims + d] = o;
    } else {
      store_result(type, args.out.data, base + d, o);
    }
  };
  if constexpr (Kind::kNibbles) {
    float o[kDims / kWarpSize];
#pragma unroll
    for (int i = 0; i < kDims / kWarpSize; ++i) o[i] = merged(i * kWarpSize + lane);
    hadamard_of_lanes(o, lane);
#pragma unroll
    for (int i = 0; i < kDims / kWarpSize; ++i) {
      const int32_t d = i * kWarpSize + lane;
      put(d, with_sign(o[i], d) * (1.0f / kDims));
    }
  } else {
#pragma unroll 1  // this code runs once, so it should be short rather than fast
    for (int32_t d = lane; d < kDims; d += kWarpSize) put(d, merged(d));
  }
  if (lane != 0) return;
  if (is_part) {
    partial[states * kDims + index] = m;
    partial[states * kDims + states + index] = l;
  } else if (args.lse != nullptr) {
    args.lse[lse_element(args, place.row, place.token, head)] = final_lse(m, l, sink);
  }
}

// ---- The kernel -----------------------------------------------------------------------------------

// The state of a block's rows over the keys of one warp's tiles. For K and V of 8 bits, ByteRows replaces this class.
template <class Kind>
class DecodeRows {
 public:
  __device__ __forceinline__ DecodeRows() : sums_() { sums_.m[0] = sums_.m[1] = -INFINITY; }
  // Loads the queries. All threads of the block must call it, because it has a barrier.
  __device__ __forceinline__ void begin(const DecodeCall& call, DecodeFixed& fixed, int32_t warp, int32_t lane,
                                        unsigned char* q) {
    if constexpr (Kind::kNibbles) {
      load_spread_queries<Kind>(call, fixed, warp, lane, q);
    } else {
      load_decode_queries<Kind>(call, fixed, warp * kWarpSize + lane, q);
    }
    __syncthreads();
  }
  __device__ __forceinline__ void compute(const DecodeCall& call, const DecodeFixed& fixed, const unsigned char* q,
                                          const unsigned char* tile, int32_t begin, int32_t lane) {
    compute_decode_tile<Kind>(call, fixed, q, tile, begin, lane, sums_);
  }
  __device__ __forceinline__ void share(DecodeFixed& fixed, float* results, int32_t warp, int32_t lane) const {
    share_decode_sums<Kind>(fixed, results, warp, lane, sums_);
  }

 private:
  DecodeSums<Kind::kValueDims> sums_;
};

// Reads the keys of the block, and writes the states of the warps to shared memory. Rows: DecodeRows or ByteRows. q: in
// shared memory, and the tiles follow. o [warp][row][Dv] overwrites the tiles.
template <class Kind, class Rows>
__device__ __forceinline__ void stream_keys(const DecodeCall& call, DecodeFixed& fixed, unsigned char* q, int32_t warp,
                                            int32_t lane) {
  const int32_t stages = call.stages;
  unsigned char* const tiles = q + Kind::kQueryParts * Kind::kPartBytes;
  unsigned char* const ring = tiles + warp * stages * Kind::kTileBytes;
  DecodeReader<Kind> reader(call, fixed, warp, lane);
  Rows rows;
  int32_t read = 0, write = 0;
  // Tile i is computed after the copies of tile i + stages - 1 have begun. Iterations with i < 0 only begin copies.
  // Iteration 0 runs also without tiles, because rows.begin has a barrier.
  for (int32_t i = 1 - stages; i <= 0 || i < reader.tiles; ++i) {
    if (i == 0) {
      if (fixed.exact != 0) find_exact_rows(call, warp * kWarpSize + lane, &fixed);
      rows.begin(call, fixed, warp, lane, q);
    }
    if (i >= 0) wait_for_stage(stages);
    __syncwarp();  // the tile has arrived, and the previous tile is no longer read
    reader.begin_tile(call, fixed, ring + write * Kind::kTileBytes);
    close_copies();
    write = write + 1 == stages ? 0 : write + 1;
    if (i < 0 || i >= reader.tiles) continue;
    rows.compute(call, fixed, q, ring + read * Kind::kTileBytes, reader.first + i * Kind::kStep, lane);
    read = read + 1 == stages ? 0 : read + 1;
  }
  wait_copies<0>();
  let_next_start();  // the merge waits until this grid has ended
  __syncthreads();   // the tiles are no longer read
  rows.share(fixed, reinterpret_cast<float*>(tiles), warp, lane);
  __syncthreads();
}

// Computes block `index` of the call.
template <class Kind>
__device__ __forceinline__ void compute_decode_block(const DecodeCall& call, int64_t index) {
  unsigned char* const shared = shared_bytes();
  DecodeFixed& fixed = *reinterpret_cast<DecodeFixed*>(shared);
  unsigned char* const q = shared + kDecodeFixedBytes;
  const float* const results = reinterpret_cast<const float*>(q + Kind::kQueryParts * Kind::kPartBytes);
  const int32_t thread = static_cast<int32_t>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  if (!begin_decode_block(call, index, thread, Kind::kStep, &fixed)) return;
  if constexpr (!Kind::kNarrow) {
    stream_keys<Kind, DecodeRows<Kind>>(call, fixed, q, warp, lane);
  } else if (fixed.rows <= 8) {
    stream_keys<Kind, ByteRows<Kind, 1>>(call, fixed, q, warp, lane);
  } else {
    stream_keys<Kind, ByteRows<Kind, 2>>(call, fixed, q, warp, lane);
  }
  if (thread < fixed.rows) merge_decode_row<Kind>(call.attend, fixed, thread);
  __syncthreads();
  for (int32_t r = warp; r < fixed.rows; r += Kind::kWarps)
    finish_decode_row<Kind>(call.attend, fixed, results, r, lane);
}

// In a step of a graph, the grid may have fewer thread blocks than the plan has blocks (common/live_grid.h).
template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads, Kind::kBlocks)
    attend_decode_kernel(const __grid_constant__ DecodeCall call) {
  // The number of blocks is read again for each block, so that it occupies no registers in between.
  for (int32_t index = static_cast<int32_t>(blockIdx.x); index < count_blocks(call.attend);
       index += static_cast<int32_t>(gridDim.x)) {
    compute_decode_block<Kind>(call, index);
    __syncthreads();  // the shared memory of this block is no longer read
  }
}

using DecodeKernel = void (*)(DecodeCall);

// The instance for a pair of types, by the head dims. Returns null if there is none.
template <class Q, class P, Type kStored>
DecodeKernel decode_kernel_of(const kvc_backend_layer& layer) {
  if (layer.head_dim == 64) return attend_decode_kernel<DecodeKind<Q, P, kStored, 64, 64>>;
  if (layer.head_dim == 128) return attend_decode_kernel<DecodeKind<Q, P, kStored, 128, 128>>;
  if constexpr (kStored != Type::kU4 && kStored != Type::kE2m1) {
    if (layer.head_dim == 256) return attend_decode_kernel<DecodeKind<Q, P, kStored, 256, 256>>;
  }
  if constexpr (kStored == Type::kF16 || kStored == Type::kBf16) {
    return attend_decode_kernel<DecodeKind<Q, P, kStored, 192, 128>>;
  }
  return nullptr;
}
// Each function is in a file of its own.
DecodeKernel decode_kernel_of_f16(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_bf16(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_e4m3(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_e2m1(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_i8(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_f16_u4(const kvc_backend_layer& layer);
DecodeKernel decode_kernel_of_bf16_u4(const kvc_backend_layer& layer);

}  // namespace kvc::kernels::cuda

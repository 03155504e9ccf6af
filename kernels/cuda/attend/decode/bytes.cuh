// Attention of few rows over K and V of 8 bits and of 4-bit floats: q, the two products, and the online softmax.
//
// Both products are transposed: S^T = K q^T, and O^T = V^T P^T. A product of the tensor cores has 16 rows and 8 columns
// (attend/mma/layout.h). The rows of the first product are keys, and the rows of the second product are dims of V. The
// columns of both products are rows of the block, 8 in each half. A block of up to 8 rows has only one half, so it has
// half as many products and half of the softmax.
//
//   K    A register of ldmatrix has the dims 4 t to 4 t + 3 (t = lane % 4) of a key. They become two registers of A. q
//        has its dims in the same order (place_of_dim).
//   P    Two scores of a C fragment are packed, and movmatrix makes them a register of B.
//   V    A register of a transposed ldmatrix has the dims 2 g and 2 g + 1 (g = lane / 4) of two keys. They become rows
//        g and g + 8 of A.
//
// q and K are multiplied in float16, which has every value of float8_e4m3fn and int8. A row of q in bfloat16 is
// multiplied by a power of two, so that its largest element is below 2^16. The scores are multiplied by the inverse of
// this power. Only elements below 2^-32 of the largest lose bits. V of float8_e4m3fn is multiplied in float16, and V of
// int8 in bfloat16, because P times a scale may be too large for float16.
//
// attend/decode/blocks.cuh loads K and V of 4-bit floats in another way, and has another order of dims.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/decode/blocks.cuh"
#include "kernels/cuda/attend/decode/instructions.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// ---- Queries --------------------------------------------------------------------------------------

// The place of dim d of a query in a row of q in shared memory, in elements.
__device__ __forceinline__ int32_t place_of_dim(int32_t d) {
  return d / 16 * 16 + d % 4 / 2 * 8 + d % 16 / 4 * 2 + d % 2;
}

// 2^power, for powers from -126 to 127.
__device__ __forceinline__ float power_of_two(int32_t power) {
  return to_float(Bf16{static_cast<uint16_t>((127 + power) << 7)});
}

// Converts pairs of bfloat16 to float16, times a power of two that all lanes choose together. Returns the inverse of
// this power.
template <int kPairs>
__device__ __forceinline__ float scale_to_f16(uint32_t (&pairs)[kPairs]) {
  uint32_t largest = 0;  // the bits of the largest finite magnitude
#pragma unroll
  for (int i = 0; i < kPairs * 2; ++i) {
    const uint32_t magnitude = (i % 2 == 0 ? pairs[i / 2] : pairs[i / 2] >> 16) & 0x7fffu;
    if (magnitude < 0x7f80u && magnitude > largest) largest = magnitude;
  }
  const int32_t wanted = 142 - static_cast<int32_t>(warp_max(largest) >> 7);  // moves the largest to [2^15, 2^16)
  const int32_t power = wanted < 126 ? wanted : 126;
  const float factor = power_of_two(power);
#pragma unroll
  for (uint32_t& pair : pairs) {
    const Bf16 low = {static_cast<uint16_t>(pair)}, high = {static_cast<uint16_t>(pair >> 16)};
    pair = pack(F16{}, to_float(low) * factor, to_float(high) * factor);
  }
  return power_of_two(-power);
}

// Writes the first `count` rows of q to shared memory in float16: rotated, and times the sign of the scale. Rows beyond
// the block's last row are zeros. A warp writes every kWarps-th row.
template <class Kind>
__device__ __forceinline__ void load_byte_queries(const DecodeCall& call, DecodeFixed& fixed, int32_t count,
                                                  int32_t warp, int32_t lane, unsigned char* q) {
  constexpr int kDims = Kind::kDims, kEach = kDims / kWarpSize;
  const kvc_backend_attend& args = call.attend.args;
  const bool is_f16 = type_of(args.q.dtype) == Type::kF16;
#pragma unroll 1
  for (int32_t r = warp; r < count; r += Kind::kWarps) {
    uint32_t pairs[kEach / 2] = {};
    unsigned char* const own = q + r * kDims * 2 + lane * kEach * 2;
    if (r < fixed.rows && call.q_is_plain != 0) {
      const QueryPlace& place = fixed.places[r];
      const uint16_t* const source = static_cast<const uint16_t*>(args.q.data) + place.row * args.q_row_stride +
                                     place.token * args.q.token_stride + fixed.heads[r] * args.q.head_stride;
      memcpy(pairs, __builtin_assume_aligned(source + lane * kEach, kEach * 2), sizeof pairs);
    } else if (r < fixed.rows) {
#pragma unroll 1
      for (int i = 0; i < kEach; ++i) {
        const float x = attended_query(call.attend, *fixed.item, fixed.places[r], fixed.heads[r], lane * kEach + i) *
                        call.attend.q_sign;
        const uint32_t pair = is_f16 ? pack(F16{}, x, x) : pack(Bf16{}, x, x);
        memcpy(own + i * 2, &pair, 2);  // read back by the same lane
      }
      memcpy(pairs, __builtin_assume_aligned(own, kEach * 2), sizeof pairs);
      __syncwarp();
    }
    if (r < fixed.rows && !is_f16) {
      const float inverse = scale_to_f16(pairs);
      if (lane == 0) fixed.units[r] *= inverse;
    }
    if constexpr (Kind::kFloat4) {
      if (r < fixed.rows && lane == 0) fixed.units[r] *= kFloat4Unit;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int32_t place = place_of_float4(lane * kEach + i);
        const auto element = static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16));
        memcpy(q + tile_place<kDims * 2>(r, place / 8) + place % 8 * 2, &element, sizeof element);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kEach / 2; ++j) {
        const int32_t place = place_of_dim(lane * kEach + j * 2);
        memcpy(__builtin_assume_aligned(q + tile_place<kDims * 2>(r, place / 8) + place % 8 * 2, 4), &pairs[j], 4);
      }
    }
  }
}

// ---- Conversion -----------------------------------------------------------------------------------

// Converts the dims 4 t to 4 t + 3 of a key to float16.
template <class Kind>
__device__ __forceinline__ void pairs_of_key(uint32_t four, uint32_t* low, uint32_t* high) {
  if constexpr (Kind::kStored == Type::kE4m3) {
    pairs_of_e4m3(four, low, high);
  } else {
    const uint32_t above = four ^ 0x80808080u;  // x + 128; with the upper byte 0x64 it is 1024 + (x + 128)
    *low = multiply_add(F16{}, pick_bytes(above, 0x64646464u, 0x4140u), 0x3c003c00u, 0xe480e480u);
    *high = multiply_add(F16{}, pick_bytes(above, 0x64646464u, 0x4342u), 0x3c003c00u, 0xe480e480u);
  }
}

// Converts the dims 2 g and 2 g + 1 of two keys to a pair for each dim.
template <class Kind>
__device__ __forceinline__ void pairs_of_value(uint32_t four, uint32_t* even, uint32_t* odd) {
  if constexpr (Kind::kStored == Type::kE4m3) {
    pairs_of_e4m3(pick_bytes(four, 0, 0x3120u), even, odd);
  } else {  // 128 + the lower 7 bits, minus 128, or minus 256 if x is negative
    const uint32_t low = four & 0x7f7f7f7fu, sign = four & 0x80808080u, above = 0x43434343u;
    *even = multiply_add(Bf16{}, pick_bytes(sign, above, 0x4240u), 0xbf80bf80u, pick_bytes(low, above, 0x4240u));
    *odd = multiply_add(Bf16{}, pick_bytes(sign, above, 0x4341u), 0xbf80bf80u, pick_bytes(low, above, 0x4341u));
  }
}

// ---- Rows -----------------------------------------------------------------------------------------

// The state of a block's rows over the keys of one warp's tiles. A lane has parts of two neighbouring rows of each half
// h: row 8 h + 2 t, where t = lane % 4, and the next row.
template <class Kind, int kHalves>
class ByteRows {
 public:
  __device__ __forceinline__ ByteRows() {
#pragma unroll
    for (int i = 0; i < kHalves * 2; ++i) {
      m_[i / 2][i % 2] = -INFINITY;
      l_[i / 2][i % 2] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kHalves * kValueSteps * 4; ++i) o_[i / (kValueSteps * 4)][i / 4 % kValueSteps][i % 4] = 0.0f;
  }

  // Loads the queries. All threads of the block must call it, because it has a barrier.
  __device__ __forceinline__ void begin(const DecodeCall& call, DecodeFixed& fixed, int32_t warp, int32_t lane,
                                        unsigned char* q) {
    load_byte_queries<Kind>(call, fixed, kHalves * 8, warp, lane, q);
    __syncthreads();
    if constexpr (kKeepsQueries) {
#pragma unroll
      for (int step = 0; step < kSteps; step += 2) q_[step / 2] = load_queries(q, step, lane);
    }
  }

  // Computes the tile whose first key is `begin`.
  __device__ __forceinline__ void compute(const DecodeCall& call, const DecodeFixed& fixed, const unsigned char* q,
                                          const unsigned char* tile, int32_t begin, int32_t lane) {
    const unsigned char* const v = tile + Kind::kKeys * Kind::kKeyPitch;
    const float* const scales = reinterpret_cast<const float*>(tile + Kind::kScalesAt) + lane / 4;
    const bool token_scales = Kind::kHasScales && call.has_token_scales != 0;
    const bool is_full = is_full_tile<Kind::kKeys>(fixed, begin);
    float s[kParts][kHalves][4];
    if constexpr (Kind::kFloat4) {
      multiply_float4_keys(q, tile, lane, s);
    } else {
      multiply_keys(q, tile, lane, s);
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      float& x = s[i / 4 / kHalves][i / 4 % kHalves][i % 4];
      x *= fixed.units[i / 4 % kHalves * 8 + lane % 4 * 2 + i % 2];
      if (token_scales) x *= scales[i / 4 / kHalves * 16 + i % 4 / 2 * 8];
    }
    const uint32_t hidden = is_full ? 0 : hide_scores(fixed, begin, lane, s);
    make_weights(call.attend.exp2_scale, s);
    if (token_scales) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        float& p = s[i / 4 / kHalves][i / 4 % kHalves][i % 4];
        // Scales of keys that the row does not see may be NaN.
        p = ((hidden >> i) & 1u) != 0 ? 0.0f : p * scales[Kind::kKeys + i / 4 / kHalves * 16 + i % 4 / 2 * 8];
      }
    }
    const bool is_rare = !is_full && fixed.exact == 0;  // if rows are exact, V of a hidden key is zeros
    if constexpr (Kind::kFloat4) {
      const uint32_t found = multiply_float4_values(is_rare, v, lane, s);
      if (is_rare && __ballot_sync(kAllLanes, found != 0) != 0) add_nan_blocks(fixed, v, begin, lane);
    } else if (Kind::kStored == Type::kI8 || !is_rare) {
      multiply_values<false>(v, lane, s);
    } else {
      const uint32_t found = multiply_values<true>(v, lane, s);
      if (__ballot_sync(kAllLanes, found != 0) != 0) add_not_finite_values(fixed, v, begin, lane);
    }
  }

  // Writes the state of the warp to shared memory: m and l to `fixed`, and o [warp][row][Dv] to `results`.
  __device__ __forceinline__ void share(DecodeFixed& fixed, float* results, int32_t warp, int32_t lane) const {
#pragma unroll
    for (int i = 0; i < kHalves * 2; ++i) {
      const int h = i / 2, c = i % 2, row = h * 8 + lane % 4 * 2 + c;
      const float l = total_of_column(l_[h][c]);
      if (row >= fixed.rows) continue;
      if (lane / 4 == 0) {
        fixed.m[warp][row] = m_[h][c];
        fixed.l[warp][row] = l;
      }
      // The lane has two neighbouring dims of each step. With 4-bit floats, the dims of all steps are adjacent.
      constexpr int kOfLane = Kind::kFloat4 ? kValueSteps * 2 : 2, kOfStep = Kind::kFloat4 ? 2 : 16;
      float* const o = results + (warp * kDecodeRows + row) * Kind::kValueDims + lane / 4 * kOfLane;
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) {
        const float two[2] = {o_[h][step][c], o_[h][step][c + 2]};
        memcpy(__builtin_assume_aligned(static_cast<void*>(o + step * kOfStep), 8), two, sizeof two);
      }
    }
  }

 private:
  using P = typename Kind::P;
  static constexpr int kParts = Kind::kKeys / 16, kSteps = Kind::kDims / 16, kValueSteps = Kind::kValueDims / 16;
  static constexpr int kScores = kParts * kHalves * 4;
  // Whether q stays in registers. Else it is read from shared memory for each tile.
  static constexpr bool kKeepsQueries = kHalves == 1;

  // B fragments of q: two steps of 16 dims.
  struct Queries {
    uint32_t steps[2][kHalves][2];
  };

  // Loads q of the steps `step` and step + 1.
  static __device__ __forceinline__ Queries load_queries(const unsigned char* q, int step, int32_t lane) {
    Queries loaded;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      uint32_t four[4];
      load_matrices(four, q + tile_place<Kind::kDims * 2>(h * 8 + lane % 8, step * 2 + lane / 8));
#pragma unroll
      for (int i = 0; i < 4; ++i) loaded.steps[i / 2][h][i % 2] = four[i];
    }
    return loaded;
  }

  // Computes S^T of the rows and the tile's keys. s: for each 16 keys and each half, a C fragment.
  __device__ __forceinline__ void multiply_keys(const unsigned char* q, const unsigned char* k, int32_t lane,
                                                float (&s)[kParts][kHalves][4]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i / 4 / kHalves][i / 4 % kHalves][i % 4] = 0.0f;
    const int32_t place = tile_place<Kind::kKeyPitch>(lane % 16, lane / 16);
#pragma unroll(kKeepsQueries ? kSteps / 2 : 1)  // unrolling more would spill registers
    for (int step = 0; step < kSteps; step += 2) {
      Queries read = {};
      if constexpr (!kKeepsQueries) read = load_queries(q, step, lane);
      const Queries& b = kKeepsQueries ? q_[kKeepsQueries ? step / 2 : 0] : read;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint32_t four[4];
        load_matrices(four, k + (place ^ (step << 4)) + part * 16 * Kind::kKeyPitch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4];
          pairs_of_key<Kind>(four[i * 2], &a[0], &a[2]);
          pairs_of_key<Kind>(four[i * 2 + 1], &a[1], &a[3]);
#pragma unroll
          for (int h = 0; h < kHalves; ++h) multiply(F16{}, s[part][h], a, b.steps[i][h][0], b.steps[i][h][1]);
        }
      }
    }
  }

  __device__ __forceinline__ void multiply_float4_keys(const unsigned char* q, const unsigned char* k, int32_t lane,
                                                       float (&s)[kParts][kHalves][4]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i / 4 / kHalves][i / 4 % kHalves][i % 4] = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const Float4Keys<Kind> keys(k + part * 16 * Kind::kKeyPitch, lane);
#pragma unroll(kKeepsQueries ? kSteps / 2 : 1)  // unrolling more would spill registers
      for (int step = 0; step < kSteps; step += 2) {
        Queries read = {};
        if constexpr (!kKeepsQueries) read = load_queries(q, step, lane);
        const Queries& b = kKeepsQueries ? q_[kKeepsQueries ? step / 2 : 0] : read;
        uint32_t a[2][4];
        keys.fragments(step / 4, step / 2 % 2, a[0], a[1]);
#pragma unroll
        for (int i = 0; i < kHalves * 2; ++i) {
          multiply(F16{}, s[part][i / 2], a[i % 2], b.steps[i % 2][i / 2][0], b.steps[i % 2][i / 2][1]);
        }
      }
    }
  }

  // Sets the scores of keys that a row does not see to -inf. Returns a bit for each of these scores.
  static __device__ __forceinline__ uint32_t hide_scores(const DecodeFixed& fixed, int32_t begin, int32_t lane,
                                                         float (&s)[kParts][kHalves][4]) {
    uint32_t hidden = 0;
#pragma unroll 1
    for (int i = 0; i < kScores; ++i) {
      const int32_t key = begin + i / 4 / kHalves * 16 + lane / 4 + i % 4 / 2 * 8;
      if (!sees_decode_key(fixed, i / 4 % kHalves * 8 + lane % 4 * 2 + i % 2, key)) hidden |= 1u << i;
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      if (((hidden >> i) & 1u) != 0) s[i / 4 / kHalves][i / 4 % kHalves][i % 4] = -INFINITY;
    }
    return hidden;
  }

  static __device__ __forceinline__ float largest_of_column(float x) {
    for (int lanes = 4; lanes < kWarpSize; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, lanes));
    return x;
  }
  static __device__ __forceinline__ float total_of_column(float x) {
    for (int lanes = 4; lanes < kWarpSize; lanes *= 2) x += __shfl_xor_sync(kAllLanes, x, lanes);
    return x;
  }

  // The online softmax over one tile. s becomes p. In most tiles, no row has a larger score than before. Then the lanes
  // exchange nothing.
  __device__ __forceinline__ void make_weights(float scale, float (&s)[kParts][kHalves][4]) {
    float largest[kHalves][2];
    bool grows = false;
#pragma unroll
    for (int i = 0; i < kHalves * 2; ++i) {
      const int h = i / 2, c = i % 2;
      float x = m_[h][c];
#pragma unroll
      for (int j = 0; j < kParts * 2; ++j) x = fmaxf(x, s[j / 2][h][j % 2 * 2 + c]);
      grows = grows || x != m_[h][c];
      largest[h][c] = x;
    }
    if (__ballot_sync(kAllLanes, grows) != 0) {
#pragma unroll
      for (int i = 0; i < kHalves * 2; ++i) {
        const int h = i / 2, c = i % 2;
        const float x = largest_of_column(largest[h][c]), before = m_[h][c];
        const float alpha = before == x ? 1.0f : fast_exp2((before - x) * scale);
        m_[h][c] = x;
        l_[h][c] *= alpha;
#pragma unroll
        for (int j = 0; j < kValueSteps * 2; ++j) o_[h][j / 2][j % 2 * 2 + c] *= alpha;
      }
    }
#pragma unroll
    for (int i = 0; i < kHalves * 2; ++i) {
      const int h = i / 2, c = i % 2;
      const float origin = m_[h][c] == -INFINITY ? 0.0f : m_[h][c];  // while no key was seen, every p is 0
#pragma unroll
      for (int j = 0; j < kParts * 2; ++j) {
        float& p = s[j / 2][h][j % 2 * 2 + c];
        p = fast_exp2((p - origin) * scale);
        l_[h][c] += p;
      }
    }
  }

  // Makes B fragments of P, which is rounded to the type of the product.
  static __device__ __forceinline__ void transpose_weights(const float (&s)[kParts][kHalves][4],
                                                           uint32_t (&p)[kParts][kHalves][2]) {
#pragma unroll
    for (int i = 0; i < kParts * kHalves * 2; ++i) {
      const float(&four)[4] = s[i / 2 / kHalves][i / 2 % kHalves];
      p[i / 2 / kHalves][i / 2 % kHalves][i % 2] = transpose(pack(P{}, four[i % 2 * 2], four[i % 2 * 2 + 1]));
    }
  }

  // O^T += V^T P^T for 4-bit floats. is_rare: some row does not see some key. Then scales of V that are NaN count as
  // zero. Returns 0 if there was none.
  __device__ __forceinline__ uint32_t multiply_float4_values(bool is_rare, const unsigned char* v, int32_t lane,
                                                             const float (&s)[kParts][kHalves][4]) {
    uint32_t p[kParts][kHalves][2], found = 0;
    transpose_weights(s, p);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Float4Values<Kind> values(v + part * 16 * Kind::kValuePitch, lane);
      if (is_rare) found |= take_not_finite<P>(values.scales);
#pragma unroll
      for (int step = 0; step < kValueSteps; step += 2) {
        uint32_t a[2][4];
        values.fragments(step / 4, step / 2 % 2, a[0], a[1]);
#pragma unroll
        for (int i = 0; i < kHalves * 2; ++i) {
          multiply(P{}, o_[i / 2][step + i % 2], a[i % 2], p[part][i / 2][0], p[part][i / 2][1]);
        }
      }
    }
    return found;
  }

  // Sets sums to NaN in the rows that see a block of V whose scale is NaN. The products had zeros in its place.
  __device__ __forceinline__ void add_nan_blocks(const DecodeFixed& fixed, const unsigned char* v, int32_t begin,
                                                 int32_t lane) {
#pragma unroll 1
    for (int32_t key = 0; key < Kind::kKeys; ++key) {
      if (!has_nan_scale<Kind>(v + key * Kind::kValuePitch, lane)) continue;
#pragma unroll
      for (int i = 0; i < kHalves * 2; ++i) {
        if (!sees_decode_key(fixed, i / 2 * 8 + lane % 4 * 2 + i % 2, begin + key)) continue;
#pragma unroll
        for (int j = 0; j < kValueSteps * 2; ++j) o_[i / 2][j / 2][j % 2 * 2 + i % 2] = NAN;
      }
    }
  }

  // O^T += V^T P^T. P is rounded to the type of the product. kRare: some row does not see some key. Then NaN in V
  // counts as zero. Returns 0 if there was none.
  template <bool kRare>
  __device__ __forceinline__ uint32_t multiply_values(const unsigned char* v, int32_t lane,
                                                      const float (&s)[kParts][kHalves][4]) {
    uint32_t p[kParts][kHalves][2], found = 0;
    transpose_weights(s, p);
    const int32_t place = tile_place<Kind::kValuePitch>(lane % 16, lane / 16);
#pragma unroll
    for (int step = 0; step < kValueSteps; step += 2) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        uint32_t four[4];
        load_transposed(four, v + (place ^ (step << 4)) + part * 16 * Kind::kValuePitch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4];
          pairs_of_value<Kind>(four[i * 2], &a[0], &a[1]);
          pairs_of_value<Kind>(four[i * 2 + 1], &a[2], &a[3]);
          if (kRare) found |= take_not_finite<P>(a);
#pragma unroll
          for (int h = 0; h < kHalves; ++h) multiply(P{}, o_[h][step + i], a, p[part][h][0], p[part][h][1]);
        }
      }
    }
    return found;
  }

  // Sets sums to NaN in the rows that see a NaN in V. The products had zeros in the place of NaN.
  __device__ __forceinline__ void add_not_finite_values(const DecodeFixed& fixed, const unsigned char* v, int32_t begin,
                                                        int32_t lane) {
#pragma unroll 1
    for (int32_t key = 0; key < Kind::kKeys; ++key) {
      bool sees[kHalves][2];
#pragma unroll
      for (int i = 0; i < kHalves * 2; ++i) {
        sees[i / 2][i % 2] = sees_decode_key(fixed, i / 2 * 8 + lane % 4 * 2 + i % 2, begin + key);
      }
#pragma unroll
      for (int step = 0; step < kValueSteps; ++step) {
        uint16_t two;
        memcpy(&two, v + tile_place<Kind::kValuePitch>(key, step) + lane / 4 * 2, sizeof two);
        const uint32_t odd = odd_bytes(Kind::kStored, two);
        if (odd == 0) continue;
#pragma unroll
        for (int e = 0; e < kHalves * 4; ++e) {
          if (sees[e / 4][e % 2] && ((odd >> (e % 4 / 2 * 8)) & 0x80u) != 0) o_[e / 4][step][e % 4] = NAN;
        }
      }
    }
  }

  Queries q_[kKeepsQueries ? kSteps / 2 : 1];
  float m_[kHalves][2], l_[kHalves][2];  // l: the sum over the lane's keys only
  float o_[kHalves][kValueSteps][4];     // C fragments: of each 16 dims, the dims 2 g and 2 g + 1
};

}  // namespace kvc::kernels::cuda

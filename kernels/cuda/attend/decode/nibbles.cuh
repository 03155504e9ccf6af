// Attention of few rows over K and V of uint4: q, and the two products.
//
// K and V are stored rotated (kernels/common/hadamard.h). So q is rotated too, and finish_decode_row undoes the
// rotation of o. A rotated q has 24 bits, but an operand of a product has only 11 or 8 bits. So q is multiplied as a
// sum of two float16 or three bfloat16 numbers, its parts. Each part is the rounded difference of q and the sum of the
// earlier parts. Memory bandwidth limits this kernel, so the additional products cost little.
//
// A level minus its zero point is an integer from -15 to 15, which both 16-bit types represent exactly. Levels are
// converted in registers. A register that is read from shared memory has eight levels. After a shift by 4 j, the
// register has the levels j and j + 4 in the lowest bits of its halves, so these two dims are a pair.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/hadamard.cuh"

namespace kvc::kernels::cuda {

// ---- Queries --------------------------------------------------------------------------------------

// The factor of a rest before it is rounded to the next part. It prevents subnormals of float16.
template <class T>
constexpr float kNextPart = std::is_same_v<T, F16> ? 0x1p11f : 1.0f;

// The place of dim d of a query in a row of a part, in elements: in the order in which the levels of K become pairs.
__device__ __forceinline__ int32_t place_of_level(int32_t d) {
  return d / 32 * 32 + d % 4 / 2 * 16 + d % 2 * 8 + d % 32 / 8 * 2 + d % 8 / 4;
}

// Writes the parts of q to shared memory: rotated, divided by kDims (the size of the rotation's block), and times the
// sign of the scale. Rows beyond the block's last row are zeros. A warp writes every kWarps-th row.
template <class Kind>
__device__ __forceinline__ void load_spread_queries(const DecodeCall& call, const DecodeFixed& fixed, int32_t warp,
                                                    int32_t lane, unsigned char* q) {
  using Q = typename Kind::Q;
  constexpr int kDims = Kind::kDims, kEach = kDims / kWarpSize;
#pragma unroll 1
  for (int32_t r = warp; r < kDecodeRows; r += Kind::kWarps) {
    float x[kEach] = {};
    if (r < fixed.rows) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int32_t d = i * kWarpSize + lane;
        x[i] = with_sign(attended_query(call.attend, *fixed.item, fixed.places[r], fixed.heads[r], d), d);
      }
      hadamard_of_lanes(x, lane);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int32_t place = place_of_level(i * kWarpSize + lane);
      float rest = x[i] * (call.attend.q_sign / static_cast<float>(kDims));
#pragma unroll
      for (int part = 0; part < Kind::kQueryParts; ++part) {
        Q rounded;
        narrow(rest, &rounded);
        memcpy(q + part * Kind::kPartBytes + tile_place<kDims * 2>(r, place / 8) + place % 8 * 2, &rounded,
               sizeof rounded);
        const float left = rest - to_float(rounded);
        rest = fabsf(left) < INFINITY ? left * kNextPart<Q> : 0.0f;  // NaN and infinity have no rest
      }
    }
  }
}

// ---- Products -------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t zero_point_at(const float* scale) {
  return static_cast<uint32_t>(zero_point_of(*scale));
}

// Computes S of 16 rows and the tile's 16 keys, without the scales of the keys. scales: those of K, of which only the
// zero points are read.
template <class Kind>
__device__ __forceinline__ void multiply_nibble_keys(const unsigned char* q, const unsigned char* k,
                                                     const float* scales, int32_t lane, float (&s)[2][4]) {
  using Q = typename Kind::Q;
  static_assert(Kind::kQueryParts == 2 || kNextPart<Q> == 1.0f);  // the lower parts have one sum
  const uint32_t zeros[2] = {zero_point_at(scales + lane / 4) * 0x10001u,
                             zero_point_at(scales + lane / 4 + 8) * 0x10001u};
  float sums[2][2][4] = {};  // of the first part, and of the lower parts
#pragma unroll
  for (int chunk = 0; chunk < Kind::kDims / 32; chunk += 2) {
    uint32_t eight[4];
    load_matrices(eight, k + tile_place<Kind::kKeyPitch>(lane % 16, chunk + lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // two steps of 16 dims for each chunk of 32 dims
      uint32_t b[2][2];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t levels = eight[i / 2 * 2 + j / 2] >> (i % 2 * 8 + j % 2 * 4) & 0x000f000fu;
        b[j / 2][j % 2] = pair_of_levels(Q{}, levels, zeros[j / 2]);
      }
#pragma unroll
      for (int part = 0; part < Kind::kQueryParts; ++part) {
        uint32_t a[4];
        load_matrices(
            a, q + part * Kind::kPartBytes + tile_place<Kind::kDims * 2>(lane % 16, chunk * 4 + i * 2 + lane / 16));
        multiply(Q{}, sums[part > 0][0], a, b[0][0], b[0][1]);
        multiply(Q{}, sums[part > 0][1], a, b[1][0], b[1][1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    s[i / 4][i % 4] = fmaf(sums[1][i / 4][i % 4], 1.0f / kNextPart<Q>, sums[0][i / 4][i % 4]);
  }
}

// The dim of element e of fragment i of o.
__device__ __forceinline__ int32_t dim_of_nibble_sum(int i, int e, int32_t lane) {
  return i / 4 * 32 + (lane % 4 * 2 + e % 2) * 4 + i % 4;
}

// o += P V. P has been multiplied by the scales of V, and is rounded to the type of the product. scales: those of V, of
// which only the zero points are read.
template <class Kind>
__device__ __forceinline__ void multiply_nibble_values(const unsigned char* v, const float* scales, int32_t lane,
                                                       const float (&s)[2][4], DecodeSums<Kind::kValueDims>& sums) {
  using P = typename Kind::P;
  const uint32_t a[4] = {pack(P{}, s[0][0], s[0][1]), pack(P{}, s[0][2], s[0][3]), pack(P{}, s[1][0], s[1][1]),
                         pack(P{}, s[1][2], s[1][3])};
  const float* const own = scales + lane % 4 * 2;  // a pair has the same dim of two keys
  const uint32_t zeros[2] = {zero_point_at(own) | zero_point_at(own + 1) << 16,
                             zero_point_at(own + 8) | zero_point_at(own + 9) << 16};
#pragma unroll
  for (int chunk = 0; chunk < Kind::kValueDims / 32; chunk += 2) {
    uint32_t eight[4];
    load_transposed(eight, v + tile_place<Kind::kValuePitch>(lane % 16, chunk + lane / 16));
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // four fragments of o for each chunk of 32 dims
      const int shift = i % 4 * 4;
      const uint32_t b0 = pair_of_levels(P{}, eight[i / 4 * 2] >> shift & 0x000f000fu, zeros[0]);
      const uint32_t b1 = pair_of_levels(P{}, eight[i / 4 * 2 + 1] >> shift & 0x000f000fu, zeros[1]);
      multiply(P{}, sums.o[chunk * 4 + i], a, b0, b1);
    }
  }
}

}  // namespace kvc::kernels::cuda

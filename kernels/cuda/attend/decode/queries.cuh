// Writes the queries of a block of few rows to shared memory. attend/decode/nibbles.cuh does this for K of uint4.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

// The place of dim d of a query in a row of q in shared memory, in elements. If K has 8 bits, the even dims of each 16
// come before the odd dims: pairs_of_bytes gives the dims of K in that order.
template <class Kind>
__device__ __forceinline__ int32_t place_of_dim(int32_t d) {
  return Kind::kNarrow ? d / 16 * 16 + d % 2 * 8 + d % 16 / 2 : d;
}

template <class Kind>
__device__ __forceinline__ unsigned char* place_in_q(unsigned char* q, int32_t row, int32_t d) {
  const int32_t place = place_of_dim<Kind>(d);
  return q + tile_place<Kind::kDims * 2>(row, place / 8) + place % 8 * 2;
}

// Copies eight dims of a query unchanged. source: null for zeros.
template <class Kind>
__device__ __forceinline__ void copy_eight_dims(unsigned char* q, int32_t row, int32_t d, const void* source) {
  uint32_t pairs[4] = {};
  if (source != nullptr) memcpy(pairs, __builtin_assume_aligned(source, 16), sizeof pairs);
  if constexpr (Kind::kNarrow) {
    const uint32_t even[2] = {pick_bytes(pairs[0], pairs[1], 0x5410u), pick_bytes(pairs[2], pairs[3], 0x5410u)};
    const uint32_t odd[2] = {pick_bytes(pairs[0], pairs[1], 0x7632u), pick_bytes(pairs[2], pairs[3], 0x7632u)};
    memcpy(__builtin_assume_aligned(place_in_q<Kind>(q, row, d), 8), even, sizeof even);
    memcpy(__builtin_assume_aligned(place_in_q<Kind>(q, row, d + 1), 8), odd, sizeof odd);
  } else {
    memcpy(__builtin_assume_aligned(place_in_q<Kind>(q, row, d), 16), pairs, sizeof pairs);
  }
}

// Writes q to shared memory: rotated, and times the sign of the scale. Rows beyond the block's last row are zeros.
template <class Kind>
__device__ __forceinline__ void load_decode_queries(const DecodeCall& call, const DecodeFixed& fixed, int32_t thread,
                                                    unsigned char* q) {
  constexpr int32_t kDims = Kind::kDims;
  const kvc_backend_attend& args = call.attend.args;
  if (call.q_is_plain != 0) {
    for (int32_t i = thread; i < kDecodeRows * kDims / 8; i += Kind::kThreads) {
      const int32_t r = i / (kDims / 8), d = i % (kDims / 8) * 8;
      const uint16_t* source = nullptr;
      if (r < fixed.rows) {
        const QueryPlace& place = fixed.places[r];
        source = static_cast<const uint16_t*>(args.q.data) + place.row * args.q_row_stride +
                 place.token * args.q.token_stride + fixed.heads[r] * args.q.head_stride + d;
      }
      copy_eight_dims<Kind>(q, r, d, source);
    }
    return;
  }
#pragma unroll 1
  for (int32_t i = thread; i < kDecodeRows * kDims; i += Kind::kThreads) {
    const int32_t r = i / kDims, d = i % kDims;
    float x = 0.0f;
    if (r < fixed.rows) {
      x = attended_query(call.attend, *fixed.item, fixed.places[r], fixed.heads[r], d) * call.attend.q_sign;
    }
    typename Kind::Q element;
    narrow(x, &element);
    memcpy(place_in_q<Kind>(q, r, d), &element, sizeof element);
  }
}

}  // namespace kvc::kernels::cuda

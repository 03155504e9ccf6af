// Writes the queries of a block of few rows to shared memory. For K of 8 and 4 bits, attend/decode/bytes.cuh and
// nibbles.cuh do this.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/decode/tiles.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

// Writes queries that cannot be copied unchanged (load_decode_queries).
template <class Kind>
KVC_OUT_OF_LINE void load_changed_queries(const DecodeCall& call, const DecodeFixed& fixed, int32_t thread,
                                          unsigned char* q) {
  constexpr int32_t kDims = Kind::kDims;
#pragma unroll 1
  for (int32_t i = thread; i < kDecodeRows * kDims; i += Kind::kThreads) {
    const int32_t r = i / kDims, d = i % kDims;
    float x = 0.0f;
    if (r < fixed.rows) {
      x = attended_query(call.attend, *fixed.item, fixed.places[r], fixed.heads[r], d) * call.attend.q_sign;
    }
    typename Kind::Q element;
    narrow(x, &element);
    memcpy(q + tile_place<kDims * 2>(r, d / 8) + d % 8 * 2, &element, sizeof element);
  }
}

// Writes q to shared memory: rotated, and times the sign of the scale. Rows beyond the block's last row are zeros.
template <class Kind>
__device__ __forceinline__ void load_decode_queries(const DecodeCall& call, const DecodeFixed& fixed, int32_t thread,
                                                    unsigned char* q) {
  constexpr int32_t kDims = Kind::kDims;
  const kvc_backend_attend& args = call.attend.args;
  if (call.q_is_plain == 0) {
    load_changed_queries<Kind>(call, fixed, thread, q);
    return;
  }
  for (int32_t i = thread; i < kDecodeRows * kDims / 8; i += Kind::kThreads) {
    const int32_t r = i / (kDims / 8), d = i % (kDims / 8) * 8;
    uint32_t pairs[4] = {};
    if (r < fixed.rows) {
      const QueryPlace& place = fixed.places[r];
      const uint16_t* const source = static_cast<const uint16_t*>(args.q.data) + place.row * args.q_row_stride +
                                     place.token * args.q.token_stride + fixed.heads[r] * args.q.head_stride + d;
      memcpy(pairs, __builtin_assume_aligned(source, 16), sizeof pairs);
    }
    memcpy(__builtin_assume_aligned(q + tile_place<kDims * 2>(r, d / 8), 16), pairs, sizeof pairs);
  }
}

}  // namespace kvc::kernels::cuda

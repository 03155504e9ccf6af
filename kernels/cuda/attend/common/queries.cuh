// A query as attention uses it: read from q, or from qv and q, then rotated and rounded to its type.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/rotate.cuh"

namespace kvc::kernels::cuda {

// Dim d of a query as the caller gave it. If qv is given, it has the first v_head_dim dims, and q has the rest. head: a
// query head of the layer.
__device__ __forceinline__ float given_query(const AttendCall& call, const QueryPlace& place, int32_t head, int32_t d) {
  const kvc_backend_attend& args = call.args;
  const int32_t values = args.qv.data != nullptr ? call.layer.v_head_dim : 0;
  const Type type = type_of(args.q.dtype);
  if (d < values) {
    return load_element(
        type, args.qv.data,
        place.row * args.qv_row_stride + place.token * args.qv.token_stride + head * args.qv.head_stride + d);
  }
  return load_element(
      type, args.q.data,
      place.row * args.q_row_stride + place.token * args.q.token_stride + head * args.q.head_stride + d - values);
}

// Dim d of a query, rotated, and rounded to the type of q.
__device__ __forceinline__ float attended_query(const AttendCall& call, const kvc_backend_item& item,
                                                const QueryPlace& place, int32_t head, int32_t d) {
  const kvc_backend_attend& args = call.args;
  const float* cos_sin = item.part == KVC_BACKEND_PART_SINKS ? args.cos_sin_sinks : args.cos_sin;
  if (cos_sin == nullptr || !is_rotated(call.layer, d)) return given_query(call, place, head, d);
  const Pair pair = pair_of(call.layer, d);
  const float* of_token = cos_sin + static_cast<int64_t>(place.token) * call.layer.rope_dim;
  const float x =
      rotated_dim(pair, given_query(call, place, head, pair.first), given_query(call, place, head, pair.second),
                  of_token[pair.index], of_token[call.layer.rope_dim / 2 + pair.index]);
  return round_to(type_of(args.q.dtype), x);
}

}  // namespace kvc::kernels::cuda

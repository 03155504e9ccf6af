// What both kernels of select share: their parameters, and where the scores of a list lie.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/seen_keys.cuh"

namespace kvc::kernels::cuda {

struct Device;

constexpr uint32_t kAbsentOrder = 0, kNanOrder = 1, kForcedOrder = UINT32_MAX;  // no number has one of these orders

struct SelectCall {
  AttendCall attend;  // q, rows and tables; the candidates, if there are some, are its lists
  kvc_backend_select select;
  uint32_t* orders;  // [queries at once, lists, stride]: of place i in a list of candidates, or key i of those seen
  int64_t stride;
  int32_t lists;  // of a query
  int32_t token_begin;
  int32_t list_begin, list_end;  // at once
};

// An order is above another one if its score is. NaN is below all numbers, and both zeros are equal.
__device__ __forceinline__ uint32_t order_of(float score) {
  uint32_t bits;
  memcpy(&bits, &score, sizeof bits);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kNanOrder;
  if (magnitude == 0) bits = 0;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ uint32_t* orders_of(const SelectCall& call, int32_t token, int32_t list) {
  const int64_t index =
      int64_t{token - call.token_begin} * (call.list_end - call.list_begin) + (list - call.list_begin);
  return call.orders + index * call.stride;
}

// Keys that are scored for a list: the candidates of the list, or all that the query sees and nodes that it does not.
__device__ __forceinline__ int32_t keys_of(const SelectCall& call, const SeenKeys& seen, int32_t token, int32_t list) {
  if (seen.keys.begin >= seen.keys.end) return 0;
  if (has_lists(call.attend)) return call.attend.listed.counts[list_of(call.attend.listed, 0, token, list)];
  return seen.keys.end - seen.keys.begin;
}

// scores.cu: enqueues the kernel that scores the keys of `queries` queries, of which each sees at most `most`.
kvc_status launch_scores(const Device& device, const SelectCall& call, int32_t queries, int64_t most, void* stream,
                         kvc_error* error);
// choice.cu: enqueues the kernel that chooses by these scores.
kvc_status launch_choice(const SelectCall& call, int32_t queries, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

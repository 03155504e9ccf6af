// What the kernels of select share: their parameters, and the orders of scores. An order is an integer that
// represents a score: a higher score has a higher order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/block_row.h"
#include "kernels/common/convert.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/seen_keys.cuh"

namespace kvc::kernels::cuda {

struct Device;

constexpr uint32_t kAbsentOrder = 0, kNanOrder = 1, kForcedOrder = UINT32_MAX;  // no number has one of these orders

struct SelectCall {
  AttendCall attend;  // has q, the rows and the page lists; if the caller gave candidates, `attend.listed` has them
  kvc_backend_select select;
  uint32_t* orders;     // [queries, lists, stride] of this launch: the order of each candidate, or of each key in the
                        // range of the query
  int64_t stride;       // the number of orders for which a list has room
  int32_t lists;        // the number of lists that are chosen for each query
  int32_t token_begin;  // the first query of this launch
  int32_t list_begin, list_end;  // the lists of this launch
  int32_t block_keys;            // the number of keys that a thread block scores on tensor cores
  int32_t has_words;             // rows of keys are aligned to 4 bytes
  BlockRow block;                // how block rows are stored; not set for other rows
  int32_t has_one_scale;         // a block row has one scale, by which the score is multiplied
  int32_t plain_q;               // q can be copied to tensor cores unchanged, 16 aligned bytes at a time
};

// Returns the order of a score. NaN has a lower order than all numbers, and both zeros have the same order.
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

// Returns the number of keys that are scored for a list: the list's candidates, or all keys in the query's range. A
// tree node in the range is counted even if the query does not see this node.
__device__ __forceinline__ int32_t keys_of(const SelectCall& call, const SeenKeys& seen, int32_t token, int32_t list) {
  if (seen.keys.begin >= seen.keys.end) return 0;
  if (has_lists(call.attend)) return call.attend.listed.counts[list_of(call.attend.listed, 0, token, list)];
  return seen.keys.end - seen.keys.begin;
}

// In scores.cu: enqueues the kernel that scores the keys of `queries` queries. most: the largest number of keys of a
// query.
kvc_status launch_scores(const Device& device, const SelectCall& call, int32_t queries, int64_t most, void* stream,
                         kvc_error* error);
// In choice.cu: enqueues the kernel that chooses entries by these scores.
kvc_status launch_choice(const SelectCall& call, int32_t queries, void* stream, kvc_error* error);

}  // namespace kvc::kernels::cuda

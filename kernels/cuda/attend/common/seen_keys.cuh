// Finds which keys the query of a token sees, from the token's number in the batch. It is for kernels that work on
// queries instead of items of a plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cuda/attend/common/call.cuh"

namespace kvc::kernels::cuda {

// The result of find_seen_keys, in shared memory.
struct SeenKeys {
  kvc_backend_attend args;
  kvc_backend_item item;  // of the token's row, for one part (KVC_BACKEND_PART_*)
  int32_t query;          // the number of the query within its row
  KeyRange keys;  // empty if the token belongs to no row or to an inert row, or if the row does not have the part
  QueryMask mask;
  KeyTree tree;
};

// Fills *seen for a token. One thread calls it.
__device__ __forceinline__ void find_seen_keys(const AttendCall& call, int32_t token, int32_t part, SeenKeys* seen) {
  const kvc_backend_rows& rows = plan_of(call)->arrays.rows;
  seen->keys = {0, 0};
  seen->tree = {INT32_MAX, nullptr};
  seen->item = kvc_backend_item{};
  int32_t row = 0, rows_end = rows.num_rows;  // the last row that begins at the token or before it
  while (rows_end - row > 1) {
    const int32_t middle = row + (rows_end - row) / 2;
    (rows.token_begin[middle] <= token ? row : rows_end) = middle;
  }
  if (rows.num_rows == 0 || token >= rows.token_begin[row + 1]) return;
  seen->item.row = row;
  if (rows.kv_lengths[row] < 0) return;
  if (part == KVC_BACKEND_PART_SINKS && (rows.stream_windows == nullptr || rows.stream_windows[row] <= 0)) return;
  seen->item.key_end = INT32_MAX;
  seen->item.part = part;
  seen->query = token - rows.token_begin[row];
  if (call.args.lists.physical != 0) {
    const int64_t slots = call.layer.num_pages * call.layer.page_size;
    seen->keys.end = slots < INT32_MAX ? static_cast<int32_t>(slots) : INT32_MAX;
    return;
  }
  seen->args = call.args;
  seen->args.layer = &call.layer;
  seen->args.plan = plan_of(call);
  seen->mask = query_mask(&seen->args, &seen->item, row, seen->query);
  seen->keys = seen->mask.keys;
  seen->tree = tree_of_row(&rows, row);
}

}  // namespace kvc::kernels::cuda

// Lists of keys (kvc_backend_lists) as attention kernels read them. Before these kernels, one kernel finds, for the
// list of each query, the slots of the keys that it names and the query sees: ascending by key, each once. So a kernel
// counts places of that array, and all of a query's places are visible: windows, trees and padding are decided here. A
// thread block has rows of one query only, because the queries of a block have unlike lists.
//
// The arrays lie in scratch of the call (scratch.h), of a size that follows from the shapes. A captured call keeps its
// own. An entry that no token or slot has names no key, so no memory outside of the pools is read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/query_place.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct AttendCall;
struct Device;

// The most rows of a thread block in a call with lists.
constexpr int32_t kMostListedRows = 64;

// On the device, by list: that of a part (KVC_BACKEND_PART_*), token and head.
struct ListedKeys {
  uint32_t* slots;     // [parts, tokens, heads, most]: page * page_size + offset
  int32_t* keys;       // nullable: not needed. The same shape: the index in its row of the key in each slot
  int32_t* counts;     // [parts, tokens, heads]: slots of each list. Null: the call has no lists
  int64_t most;        // slots that a list has room for
  int32_t tokens;      // of the call, or the most in any step of its graph
  int32_t heads;       // lists of a query
  int32_t parts;       // 2 if rows may stream
  int32_t row_blocks;  // thread blocks that share a block of the plan (find_listed_rows)
};

KVC_HOST_DEVICE int64_t list_of(const ListedKeys& lists, int32_t part, int64_t token, int32_t head) {
  return (part * int64_t{lists.tokens} + token) * lists.heads + (lists.heads == 1 ? 0 : head);
}

// Rows of one query among the rows [*begin, *end) of an item with `group` rows a query: those that thread block `index`
// of [0, row_blocks) computes. None, if *begin is not below *end.
KVC_HOST_DEVICE void find_listed_rows(int32_t group, int32_t index, int32_t* begin, int32_t* end) {
  const int32_t of_query = (group + kMostListedRows - 1) / kMostListedRows;  // thread blocks
  const int32_t number = *begin / group * of_query + *begin % group / kMostListedRows + index;
  const int32_t query = number / of_query * group, first = query + number % of_query * kMostListedRows;
  int32_t last = first + kMostListedRows;
  if (last > query + group) last = query + group;
  if (first > *begin) *begin = first;
  if (last < *end) *end = last;
}

// The most thread blocks for a block of the plan, whose rows are [i * rows, (i + 1) * rows) of an item.
constexpr int32_t row_blocks_of(int32_t group, int32_t rows) {
  if (group % rows == 0) return (rows + kMostListedRows - 1) / kMostListedRows;
  const int32_t queries = rows % group == 0 ? rows / group : (rows + group - 2) / group + 1;
  return queries * ((group + kMostListedRows - 1) / kMostListedRows);
}

// Takes scratch for call->listed, and enqueues the kernel that fills it. The call's plan, layer and live plan are set.
// staged: null if the device made the plan. memory: what the caller gives back after the kernels that read it.
// heads: of the lists, if each head has its own.
kvc_status list_keys(Device& device, const kvc_backend_staged_plan* staged, int32_t heads, AttendCall* call,
                     void* stream, void** memory, kvc_error* error);

}  // namespace kvc::kernels::cuda

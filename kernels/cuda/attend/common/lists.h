// Lists of keys (kvc_backend_lists) as attention kernels read them.
//
// Before the attention, list_keys_kernel makes an array for the list of each query: the slots of the keys that the list
// names and the query sees. The slots ascend by key, and each key occurs once. Attention kernels then use places in
// that array as key numbers. The query sees every key of the array, because windows, trees and padding were applied
// before. Queries have different lists, so a thread block computes rows of one query only.
//
// The arrays lie in scratch of the call (scratch.h). Their sizes follow from the shapes alone. In a capture, the arrays
// lie in memory of the capture, so replays can use them. An entry that is out of range names no key, so no memory
// outside of the pools is read.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/query_place.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct AttendCall;
struct Device;

// The largest number of rows of a thread block in a call with lists.
constexpr int32_t kMostListedRows = 64;

// Arrays in device memory, indexed by part (KVC_BACKEND_PART_*), token and head of a list.
struct ListedKeys {
  uint32_t* slots;     // [parts, tokens, heads, most]: page * page_size + offset
  int32_t* keys;       // null: not needed. Else, in the same shape, the key in each slot, as an index in its row
  int32_t* counts;     // [parts, tokens, heads]: the length of each list. Null: the call has no lists
  int64_t most;        // the largest number of slots of a list
  int32_t tokens;      // the number of tokens of the call; in a graph, the largest number of any step
  int32_t heads;       // the number of lists of a query
  int32_t parts;       // 2 if rows may have a streaming window, else 1
  int32_t row_blocks;  // the number of thread blocks that share one AttendBlock of the plan (find_listed_rows)
};

KVC_HOST_DEVICE int64_t list_of(const ListedKeys& lists, int32_t part, int64_t token, int32_t head) {
  return (part * int64_t{lists.tokens} + token) * lists.heads + (lists.heads == 1 ? 0 : head);
}

// At the call, [*begin, *end) are the rows of an AttendBlock. The function reduces them to the rows that thread block
// `index` of [0, row_blocks) computes. These rows belong to one query. If *begin >= *end after the call, the block has
// no rows. group: the number of rows of a query.
KVC_HOST_DEVICE void find_listed_rows(int32_t group, int32_t index, int32_t* begin, int32_t* end) {
  const int32_t of_query = (group + kMostListedRows - 1) / kMostListedRows;  // the number of thread blocks
  const int32_t number = *begin / group * of_query + *begin % group / kMostListedRows + index;
  const int32_t query = number / of_query * group, first = query + number % of_query * kMostListedRows;
  int32_t last = first + kMostListedRows;
  if (last > query + group) last = query + group;
  if (first > *begin) *begin = first;
  if (last < *end) *end = last;
}

// Returns the largest number of thread blocks that one AttendBlock needs. AttendBlock i of an item has the rows from
// i * rows on, at most `rows` of them.
constexpr int32_t row_blocks_of(int32_t group, int32_t rows) {
  if (group % rows == 0) return (rows + kMostListedRows - 1) / kMostListedRows;
  const int32_t queries = rows % group == 0 ? rows / group : (rows + group - 2) / group + 1;
  return queries * ((group + kMostListedRows - 1) / kMostListedRows);
}

// Takes scratch, sets call->listed, and enqueues the kernel that fills its arrays. The caller must set
// call->plan, call->layer and call->live_plan (call.cuh) before. After the kernels that read the arrays, the caller
// gives *memory back. staged: null if the device made the plan. heads: the number of lists of a query, if each head has
// a list of its own; else it is ignored.
kvc_status list_keys(Device& device, const kvc_backend_staged_plan* staged, int32_t heads, AttendCall* call,
                     void* stream, void** memory, kvc_error* error);

}  // namespace kvc::kernels::cuda

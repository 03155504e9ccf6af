// Converts lists of keys (kvc_backend_lists) to arrays. The list of a query becomes an ascending array with the indexes
// of those keys that the list names and the query sees. Kernels number keys by their places in this array
// (View::key_indexes). The array has only keys that the query sees. So kernels need not test listed keys for windows or
// trees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels {

// The memory that find_listed_keys needs for one list.
struct ListScratch {
  int32_t units[KVC_MAX_LISTED_KEYS];
  int32_t keys[KVC_MAX_LISTED_KEYS];
};

// One query of an item, some kv heads of that item that share a list, and the keys that the list names.
struct ListedQuery {
  int32_t query;                 // number of the query within the item
  int32_t head_begin, head_end;  // the kv heads that share the list
  int32_t num_keys;
  const int32_t* keys;  // [num_keys] indexes of the row's keys, or slots of the pools; ascending, each once
};

// Sets num_keys and keys of `listed`, whose other fields must be set. Entries that are out of range are left out, so
// all keys are within the row, or within the pools.
void find_listed_keys(const kvc_backend_attend& args, const kvc_backend_item& item, ListScratch* scratch,
                      ListedQuery* listed);

}  // namespace kvc::kernels

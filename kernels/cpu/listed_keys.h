// Lists of keys (kvc_backend_lists). The list of a query becomes an ascending array of key indexes: the keys that the
// list names and the query sees. Kernels number keys by their places in this array (View::key_indexes). Windows, trees
// and padding have been applied to the array, so kernels apply none of them to a listed key.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels {

// Memory for one list.
struct ListScratch {
  int32_t units[KVC_MAX_LISTED_KEYS];
  int32_t keys[KVC_MAX_LISTED_KEYS];
};

// One query of an item, some kv heads of that item that share a list, and the keys that the list names.
struct ListedQuery {
  int32_t query;                 // within the item
  int32_t head_begin, head_end;  // kv heads that share the list
  int32_t num_keys;
  const int32_t* keys;  // [num_keys] indexes of the row's keys, or slots of the pools; ascending, each once
};

// Sets num_keys and keys of `listed`. The caller has set its other fields. Whatever the caller's entries are, all
// indexes are within the row, or within the pools.
void find_listed_keys(const kvc_backend_attend& args, const kvc_backend_item& item, ListScratch* scratch,
                      ListedQuery* listed);

}  // namespace kvc::kernels

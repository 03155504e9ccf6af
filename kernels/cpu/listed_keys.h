// Lists of keys (kvc_backend_lists): the list of one query becomes an ascending array of the indexes of the keys that
// it names and the query sees. The kernels number keys by their places in it (View::key_indexes), so windows, trees and
// padding are decided here, once for each query, and no kernel masks a listed key.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels {

// Memory for one list.
struct ListScratch {
  int32_t units[KVC_MAX_LISTED_KEYS];
  int32_t keys[KVC_MAX_LISTED_KEYS];
};

// One query of an item, some of the item's kv heads, and the keys that their list names.
struct ListedQuery {
  int32_t query;                 // within the item
  int32_t head_begin, head_end;  // kv heads, which have one list
  int32_t num_keys;
  const int32_t* keys;  // [num_keys] indexes of the row's keys, or slots of the pools; ascending, each once
};

// Sets num_keys and keys of `listed`, whose other fields are set. Positions and lengths bound the indexes, whatever the
// caller's entries are.
void find_listed_keys(const kvc_backend_attend& args, const kvc_backend_item& item, ListScratch* scratch,
                      ListedQuery* listed);

}  // namespace kvc::kernels

// Finds the page of a key in kvc_backend_tables. A page list is a tree or an array. In both forms, a cursor reads the
// list leaf by leaf. A leaf has the page ids of FANOUT consecutive list entries. The cursor looks up a leaf once, and
// then reads neighbouring ids from the 128 bytes of this leaf. Entries that no query sees are never read, so they may
// have any value.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

struct PageCursor {
  const int32_t* nodes;  // [num_nodes, FANOUT]
  int32_t root;
  int32_t levels;
  const int32_t* pages;  // null: the list is a tree. Else the first entry of the list, which is an array
  int64_t leaf_index;    // number of the leaf that `leaf` points to; -1 = none yet
  const int32_t* leaf;   // [FANOUT] page ids
};

KVC_HOST_DEVICE PageCursor page_cursor(const kvc_backend_tables* tables, int32_t row) {
  PageCursor cursor;
  cursor.nodes = tables->nodes;
  cursor.pages = tables->pages == nullptr ? nullptr : tables->pages + tables->page_begin[row];
  cursor.root = cursor.pages != nullptr ? -1 : tables->roots[row];
  cursor.levels = cursor.pages != nullptr ? 0 : tables->levels[row];
  cursor.leaf_index = -1;
  cursor.leaf = nullptr;
  return cursor;
}

// Returns leaf number `leaf_index`: the page ids of the list entries [leaf_index * FANOUT, (leaf_index + 1) * FANOUT).
KVC_HOST_DEVICE const int32_t* page_leaf(const PageCursor* cursor, int64_t leaf_index) {
  if (cursor->pages != nullptr) return cursor->pages + leaf_index * KVC_BACKEND_NODE_FANOUT;
  return kvc_backend_leaf(cursor->nodes, cursor->root, cursor->levels, leaf_index * KVC_BACKEND_NODE_FANOUT);
}

// Returns the page id of list entry `index`. The entry must have a page.
KVC_HOST_DEVICE int32_t page_at(PageCursor* cursor, int64_t index) {
  const int64_t leaf_index = index >> KVC_BACKEND_NODE_FANOUT_LOG2;
  if (leaf_index != cursor->leaf_index) {
    cursor->leaf = page_leaf(cursor, leaf_index);
    cursor->leaf_index = leaf_index;
  }
  return cursor->leaf[index & (KVC_BACKEND_NODE_FANOUT - 1)];
}

}  // namespace kvc::kernels

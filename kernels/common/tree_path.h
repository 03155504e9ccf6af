// Numbers the keys of token trees for deterministic caches. The plain append of a node appends only the tokens on the
// path from the root to the node, without a tree. In a deterministic cache, the output of the node must have the same
// bits as after this plain append.
//
// Therefore each key of a path has a number: its place in the sequence after the plain append. The number of a key
// before tree.begin is its index. The number of a node on the path is its position. A query sees a range of numbers. So
// the kernels add its keys in the same order, and in the same blocks, as after a plain append. If a tree has branches,
// the index of a node can be greater than its number.
//
// A call uses these numbers if kvc_backend_plan.fold_keys is set. The key ranges of its items are then read as ranges
// of numbers. These ranges still cover all keys, because the last range ends after the index of the last query, and
// the number of a key is never greater than its index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"

namespace kvc::kernels {

// Returns whether the node at `index` is on the path of the query's node: that node itself, or an ancestor of it.
// enter: kvc_backend_tree_node.enter of the query's node.
KVC_HOST_DEVICE bool is_on_path(const KeyTree* tree, int32_t enter, int32_t index) {
  const kvc_backend_tree_node* node = tree->nodes + (index - tree->begin);
  return node->enter <= enter && enter < node->exit;
}

// Returns the index of the key that has number `key` on the query's path. mask: the mask of the query. The query must
// see the key.
KVC_HOST_DEVICE int32_t index_on_path(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  int32_t index = key;  // The search begins here, because all earlier nodes have lower positions.
  if (key < tree->begin) return index;
  while (tree->nodes[index - tree->begin].position != key || !is_on_path(tree, mask->enter, index)) ++index;
  return index;
}

// Does the same as query_mask, but the ranges of the result are ranges of numbers on the query's path. For a query that
// is not a node, the result equals that of query_mask.
KVC_HOST_DEVICE QueryMask path_mask(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                    int32_t query) {
  const kvc_backend_rows* rows = &args->plan->arrays.rows;
  const KeyTree tree = tree_of_row(rows, row);
  QueryMask mask = query_mask(args, item, row, query);
  if (mask.positions.end <= tree.begin) return mask;  // The query is not a node.
  const int32_t length = rows->kv_lengths[row], token = rows->token_begin[row] + query;
  const int32_t first_new = length - (rows->token_begin[row + 1] - rows->token_begin[row]);
  int32_t first_number = first_new;  // number of the first key of this step
  if (first_new > tree.begin) {
    first_number = tree.begin;
    for (int32_t i = tree.begin; i < first_new; ++i) first_number += is_on_path(&tree, mask.enter, i) ? 1 : 0;
  }
  KeyRange covered = {item->key_begin, item->key_end};
  if ((args->plan->flags & KVC_ATTEND_PAST) != 0 && first_number < covered.end) covered.end = first_number;
  if ((args->plan->flags & KVC_ATTEND_SELF) != 0) {
    // The first item of a row begins at the index of the row's first new key. The number of that key may be lower.
    if (covered.begin <= first_new) covered.begin = first_number;
  }
  const KeyRange of_path = {0, causal_end(rows->positions[token])};
  mask.keys = intersect(intersect(mask.positions, of_path), covered);
  return mask;
}

}  // namespace kvc::kernels

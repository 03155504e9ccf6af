// Deterministic caches: a node of a token tree gives the bits that its token would give if its path were appended
// plainly.
//
// The keys of a path are numbered as after a plain append: key k below tree.begin has number k, and a node of the path
// has its position as number. A query sees a range of these numbers, so the kernels add its keys in the order, and in
// the blocks, of a plain append. With branches, the index of a node is above its number.
//
// A call uses these numbers if kvc_backend_plan.fold_keys is set. The key ranges of its items are ranges of numbers
// too: an item's keys end after the index of its last query, and no number is above its index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"

namespace kvc::kernels {

// Whether the node at `index` is the one with interval position `enter`, or an ancestor of it.
KVC_HOST_DEVICE bool is_on_path(const KeyTree* tree, int32_t enter, int32_t index) {
  const kvc_backend_tree_node* node = tree->nodes + (index - tree->begin);
  return node->enter <= enter && enter < node->exit;
}

// Index of the key with number `key` on the path of `mask`'s query. The query must see the key.
KVC_HOST_DEVICE int32_t index_on_path(const KeyTree* tree, const QueryMask* mask, int32_t key) {
  int32_t index = key;  // Nodes before it are at lower positions.
  if (key < tree->begin) return index;
  while (tree->nodes[index - tree->begin].position != key || !is_on_path(tree, mask->enter, index)) ++index;
  return index;
}

// As query_mask, in numbers of the query's path. A plain row's mask is that of query_mask.
KVC_HOST_DEVICE QueryMask path_mask(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                    int32_t query) {
  const kvc_backend_rows* rows = &args->plan->arrays.rows;
  const KeyTree tree = tree_of_row(rows, row);
  QueryMask mask = query_mask(args, item, row, query);
  if (mask.positions.end <= tree.begin) return mask;  // Not a node.
  const int32_t length = rows->kv_lengths[row], token = rows->token_begin[row] + query;
  const int32_t first_new = length - (rows->token_begin[row + 1] - rows->token_begin[row]);
  int32_t first_number = first_new;  // of the keys of this step
  if (first_new > tree.begin) {
    first_number = tree.begin;
    for (int32_t i = tree.begin; i < first_new; ++i) first_number += is_on_path(&tree, mask.enter, i) ? 1 : 0;
  }
  KeyRange covered = {item->key_begin, item->key_end};
  if ((args->plan->flags & KVC_ATTEND_PAST) != 0 && first_number < covered.end) covered.end = first_number;
  if ((args->plan->flags & KVC_ATTEND_SELF) != 0) {
    // The plan's first item begins at the index of the first new key, whose number may be lower.
    if (covered.begin <= first_new) covered.begin = first_number;
  }
  const KeyRange of_path = {0, causal_end(rows->positions[token])};
  mask.keys = intersect(intersect(mask.positions, of_path), covered);
  return mask;
}

}  // namespace kvc::kernels

// Computes what the queries of a work item see: the rules of visible.h, applied to the rows, flags and keys of one
// call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/visible.h"

namespace kvc::kernels {

// Returns the positions that the layer, the row and the call let a query see. If the row has a streaming window,
// item->part says whether the result is the sinks or the window.
KVC_HOST_DEVICE KeyRange visible_positions(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                           int32_t token) {
  const kvc_backend_rows* rows = &args->plan->arrays.rows;
  const int32_t p = rows->positions[token];
  const uint32_t flags = args->plan->flags;
  const VisibleRule rule = rule_of_row(rule_of_layer(args->layer), rows, row);
  const bool spans = rows->key_ends != nullptr && (flags & KVC_ATTEND_NO_SPANS) == 0;
  int32_t end = spans ? rows->key_ends[token] : causal_end(p);
  if ((flags & KVC_ATTEND_NON_CAUSAL) != 0) end = INT32_MAX;
  if (item->part == KVC_BACKEND_PART_SINKS) return KeyRange{0, visible_sinks(rule, end)};
  KeyRange keys = visible_keys(rule, p, end);
  if ((flags & KVC_ATTEND_STEP_WINDOW) != 0) keys.begin = visible_begin(rule, rows->positions[rows->token_begin[row]]);
  return keys;
}

// Returns the position from which the distances of a query to keys are counted, for ALiBi and relative biases.
KVC_HOST_DEVICE int32_t bias_position(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                      int32_t token) {
  const int32_t p = args->plan->arrays.rows.positions[token];
  return item->part == KVC_BACKEND_PART_SINKS ? position_for_sinks(args->plan->arrays.rows.stream_windows[row], p) : p;
}

// Returns which of the item's keys are visible to query number `query` of `row`.
KVC_HOST_DEVICE QueryMask query_mask(const kvc_backend_attend* args, const kvc_backend_item* item, int32_t row,
                                     int32_t query) {
  const kvc_backend_rows* rows = &args->plan->arrays.rows;
  const int32_t token = rows->token_begin[row] + query, length = rows->kv_lengths[row];
  const int32_t first_new = length - (rows->token_begin[row + 1] - rows->token_begin[row]);
  const KeyTree tree = tree_of_row(rows, row);
  QueryMask mask;
  mask.position = bias_position(args, item, row, token);
  mask.positions = visible_positions(args, item, row, token);
  mask.enter = mask.positions.end > tree.begin ? tree.nodes[first_new + query - tree.begin].enter : 0;
  KeyRange covered = {item->key_begin, item->key_end < length ? item->key_end : length};
  if ((args->plan->flags & KVC_ATTEND_PAST) != 0 && first_new < covered.end) covered.end = first_new;
  if ((args->plan->flags & KVC_ATTEND_SELF) != 0 && first_new > covered.begin) covered.begin = first_new;
  mask.keys = intersect(visible_indexes(tree, mask.positions, first_new + query), covered);
  return mask;
}

}  // namespace kvc::kernels

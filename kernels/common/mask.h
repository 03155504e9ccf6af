// Which keys a query sees, in absolute positions: the only place where masks are decided.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

// Keys at positions [begin, end); empty when begin >= end.
struct KeyRange {
  int32_t begin;
  int32_t end;
};

KVC_HOST_DEVICE KeyRange intersect(KeyRange a, KeyRange b) {
  KeyRange range;
  range.begin = a.begin > b.begin ? a.begin : b.begin;
  range.end = a.end < b.end ? a.end : b.end;
  if (range.end < range.begin) range.end = range.begin;
  return range;
}

// Keys that a query at `position` sees: 0..position, or the last `window_tokens` of them (itself included).
KVC_HOST_DEVICE KeyRange visible_keys(int32_t position, int32_t window_tokens) {
  KeyRange range;
  range.begin = window_tokens > 0 && position >= window_tokens ? position - window_tokens + 1 : 0;
  range.end = position + 1;
  return range;
}

// The same, of the keys that a work item covers and the sequence holds.
KVC_HOST_DEVICE KeyRange visible_keys_of_item(const kvc_backend_layer* layer, const kvc_backend_rows* rows,
                                              const kvc_backend_item* item, int32_t query) {
  const int32_t position = rows->positions[rows->token_begin[item->row] + query];
  const int32_t length = rows->kv_lengths[item->row];
  const KeyRange covered = {item->key_begin, item->key_end < length ? item->key_end : length};
  return intersect(visible_keys(position, layer->window_tokens), covered);
}

}  // namespace kvc::kernels

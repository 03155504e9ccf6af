// Says where a query of a work item lies in q, and where its output or partial state goes. A shared item has queries of
// several rows. The queries of the item are the queries of its kvc_backend_spans, one span after another. The queries
// of a span belong to one row. An item that is not shared has queries of one row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

struct QueryPlace {
  int32_t row;
  int32_t query;        // number of the query within the row
  int32_t token;        // index in q and out
  int32_t states;       // number of partial states of the item or span, stored as o[states][Dv], m[states], l[states]
  int32_t first_state;  // the state of q head h is number first_state + h of these states
  int64_t partial_offset;  // floats before these states in the partials; negative: the item writes the output
};

// Returns the offset of a token and head in `out`, or in `lse`, in elements.
KVC_HOST_DEVICE int64_t out_element(const kvc_backend_attend& args, int64_t row, int64_t token, int64_t head) {
  return row * args.out_row_stride + token * args.out.token_stride + head * args.out.head_stride;
}
KVC_HOST_DEVICE int64_t lse_element(const kvc_backend_attend& args, int64_t row, int64_t token, int64_t head) {
  return row * args.lse_row_stride + token * args.lse_token_stride + head * args.lse_head_stride;
}

// Walks the queries of an item in ascending order.
struct QueryCursor {
  const kvc_backend_attend* args;
  const kvc_backend_item* item;
  int32_t span;        // number of the current span, if the item is shared
  int32_t span_begin;  // number, within the item, of the first query of the current span
};

KVC_HOST_DEVICE QueryCursor query_cursor(const kvc_backend_attend* args, const kvc_backend_item* item) {
  QueryCursor cursor = {args, item, item->span_begin, 0};
  return cursor;
}

KVC_HOST_DEVICE bool is_shared(const kvc_backend_item* item) { return item->span_begin < item->span_end; }

// Returns the place of query `index` of the item. index: in [0, q_end - q_begin).
KVC_HOST_DEVICE QueryPlace place_of_query(QueryCursor* cursor, int32_t index) {
  const kvc_backend_item* item = cursor->item;
  const kvc_backend_layer* layer = cursor->args->layer;
  const int32_t group = layer->num_q_heads / layer->num_kv_heads;
  QueryPlace place;
  if (is_shared(item)) {
    const kvc_backend_span* span = cursor->args->plan->arrays.spans + cursor->span;
    for (; index - cursor->span_begin >= span->q_end - span->q_begin; ++span, ++cursor->span) {
      cursor->span_begin += span->q_end - span->q_begin;
    }
    const int32_t within = index - cursor->span_begin;
    place.row = span->row;
    place.query = span->q_begin + within;
    place.states = (span->q_end - span->q_begin) * layer->num_q_heads;
    place.first_state = within * layer->num_q_heads;
    place.partial_offset = span->partial_offset;
  } else {
    const int32_t heads = (item->head_end - item->head_begin) * group;
    place.row = item->row;
    place.query = item->q_begin + index;
    place.states = (item->q_end - item->q_begin) * heads;
    place.first_state = index * heads - item->head_begin * group;
    place.partial_offset = item->partial_offset;
  }
  place.token = cursor->args->plan->arrays.rows.token_begin[place.row] + place.query;
  return place;
}

}  // namespace kvc::kernels

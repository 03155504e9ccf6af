// See step/staged_plan.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/step/staged_plan.h"

#include <algorithm>

namespace kvc::kernels::cuda {
namespace {

// Returns the number of elements of tree_nodes up to the last node to which a row refers.
int64_t count_nodes(const kvc_backend_rows& rows) {
  int64_t count = 0;
  for (int32_t r = 0; rows.tree_begin != nullptr && r < rows.num_rows; ++r) {
    const int64_t nodes = rows.kv_lengths[r] - rows.tree_begin[r];
    if (nodes > 0 && rows.tree_offset[r] + nodes > count) count = rows.tree_offset[r] + nodes;
  }
  return count;
}

// Calls visit(host array, number of elements, &device address) for each array of work items.
template <class Visit>
void for_each_work_array(kvc_backend_plan* plan, const Visit& visit) {
  const kvc_backend_plan_arrays& host = plan->arrays;
  kvc_backend_plan_arrays& device = plan->device;
  visit(host.items, plan->num_items, &device.items);
  visit(host.tiles, plan->num_tiles, &device.tiles);
  visit(host.spans, plan->num_spans, &device.spans);
  visit(host.parts, plan->num_parts, &device.parts);
}

// Calls visit as above for each array of rows.
template <class Visit>
void for_each_row_array(kvc_backend_plan* plan, const Visit& visit) {
  const kvc_backend_rows& host = plan->arrays.rows;
  kvc_backend_rows& device = plan->device.rows;
  const int64_t rows = host.num_rows, tokens = host.num_tokens;
  visit(host.token_begin, rows + 1, &device.token_begin);
  visit(host.kv_lengths, rows, &device.kv_lengths);
  visit(host.positions, tokens, &device.positions);
  visit(host.key_ends, tokens, &device.key_ends);
  visit(host.stream_sinks, rows, &device.stream_sinks);
  visit(host.stream_windows, rows, &device.stream_windows);
  visit(host.tree_begin, rows, &device.tree_begin);
  visit(host.tree_offset, rows, &device.tree_offset);
  visit(host.tree_nodes, count_nodes(host), &device.tree_nodes);
  visit(host.key_begins, rows, &device.key_begins);
  visit(plan->arrays.key_sets, tokens, &plan->device.key_sets);
}

}  // namespace

// An item of many rows has at least `wide` queries, so few items can have many rows. All ranges of queries together
// have at most max_tokens queries. The shared items of one kv head together have at most max_spans queries
// (max_shared_queries in src/plan/work_plan.h). An unshared item has at most `most` rows.
BlockCounts most_blocks(const kvc_backend_plan& plan, int64_t max_tokens, const BlockCut& many) {
  const kvc_backend_layer& layer = *plan.layer;
  const int64_t group = layer.num_q_heads / layer.num_kv_heads, of_item = most_item_rows(many);
  const int64_t most = group > of_item ? group : of_item, wide = (many.min_rows + group - 1) / group;
  const int64_t own_items = std::min(plan.max_items, 2 * (max_tokens / wide) + plan.max_split_items);
  const int64_t shared_items = std::min(plan.max_items, plan.max_spans / wide);
  const auto blocks = [&](int64_t rows) { return (rows + many.rows - 1) / many.rows; };
  const int64_t heads = layer.num_kv_heads;
  return {plan.max_items * heads, heads * (own_items * blocks(most) + shared_items + blocks(plan.max_spans * group))};
}

void PlanPieces::list_work(kvc_backend_plan* plan) {
  for_each_work_array(plan, [&](const auto* source, int64_t count, auto*) { add(source, count); });
  blocks_ = count_all_blocks(*plan, many_);
  pieces_[count_++] = room_for<AttendBlock>(blocks_.both());
}

kvc_status PlanPieces::list_all(kvc_backend_plan* plan, Upload* upload, kvc_error* error) {
  whole_ = true;
  list_work(plan);
  for_each_row_array(plan, [&](const auto* source, int64_t count, auto*) { add(source, count); });
  const int64_t lists = 2 * int64_t{plan->arrays.rows.num_rows};
  PageRange* const ranges = upload->scratch<PageRange>(lists);
  if (ranges == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for page ranges");
  ranges_ = ranges;
  const int64_t pages = find_page_ranges(*plan, ranges);
  // The array has at least one element, because null would mean that page lists are trees.
  pieces_[count_++] = room_for<int32_t>(pages > 0 ? pages : 1);
  pieces_[count_++] = room_for<int64_t>(lists);
  return KVC_OK;
}

void PlanPieces::write(kvc_backend_plan* plan, kvc_backend_staged_plan* staged) {
  const Piece* next = pieces_;
  const auto point = [&]<class T>(const T*, int64_t, const T** device) { *device = on_device<const T>(*next++); };
  for_each_work_array(plan, point);
  *staged = {};
  staged->blocks = on_device<const AttendBlock>(*next);
  staged->count = blocks_;
  list_all_blocks(*plan, many_, static_cast<AttendBlock*>(next++->host));
  if (whole_) {
    plan->device.rows.num_rows = plan->arrays.rows.num_rows;
    plan->device.rows.num_tokens = plan->arrays.rows.num_tokens;
    for_each_row_array(plan, point);
    plan->device.tables = {};
    plan->device.tables.pages = on_device<const int32_t>(next[0]);
    plan->device.tables.page_begin = on_device<const int64_t>(next[1]);
    flatten_pages(*plan, ranges_, static_cast<int32_t*>(next[0].host), static_cast<int64_t*>(next[1].host));
  }
  plan->staged = staged;
}

}  // namespace kvc::kernels::cuda

// The text of kvc_forward_describe: what a step plans.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "cache/cache.h"
#include "cache/forward_use.h"

namespace kvc {

std::string Cache::describe_group(Forward& forward, int32_t group) const {
  std::string text;
  char line[512];
  for (size_t c = 0; c < work_classes_.size(); ++c) {
    if (work_classes_[c].group != group) continue;
    const WorkPlan& plan = forward.work_plan(c);
    const auto first = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const int64_t layers = std::count_if(first, layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const kvc_backend_layer& layer = first->backend;
    const int64_t rows = layer.v_in_k != 0 ? 1 : 2, dims = layer.head_dim + (rows == 1 ? 0 : layer.v_head_dim);
    const int64_t scale_bytes = layer.k_scales.slot_stride != 0 ? rows * int64_t{sizeof(float)} : 0;
    const int64_t key_bytes = dims * (layer.dtype.bits / 8) + scale_bytes;
    int64_t bytes = 0;
    int64_t decode_items = 0;
    for (const kvc_backend_item& item : plan.items()) {
      bytes += int64_t{item.key_end - item.key_begin} * (item.head_end - item.head_begin) * key_bytes;
      decode_items += item.span_begin == item.span_end &&
                      item.q_end - item.q_begin <= work_classes_[c].shape.tiling.decode_max_queries;
    }
    int64_t split_items = 0;
    for (const kvc_backend_tile& tile : plan.tiles()) split_items += tile.item_end - tile.item_begin;
    std::snprintf(
        line, sizeof line,
        "%s{\"group\": %d, \"layers\": %" PRId64 ", \"kernel\": \"%s\", \"items\": %zu, \"decode_items\": %" PRId64
        ", \"split_tiles\": %zu, \"splits\": %" PRId64 ", \"prefix_groups\": %" PRId64 ", \"kv_bytes\": %" PRId64 "}",
        text.empty() ? "" : ", ", group, layers, context_->backend().implementation(context_->device()),
        plan.items().size(), decode_items, plan.tiles().size(), split_items, plan.num_prefix_groups(), bytes);
    text += line;
  }
  return text;
}

Status Cache::describe(kvc_forward id, std::string* out) {
  ForwardUse forward(*this);
  KVC_TRY(forward.enter(id));
  const kvc_backend_rows& rows = forward->batch->rows();
  *out = "{\"rows\": " + std::to_string(rows.num_rows) + ", \"tokens\": " + std::to_string(rows.num_tokens) +
         ", \"layer_begin\": " + std::to_string(forward->kind.layers.begin) +
         ", \"layer_end\": " + std::to_string(forward->kind.layers.end) + ", \"work\": [";
  for (int32_t g = 0; g < num_groups(); ++g) {
    const std::string work = describe_group(*forward, g);
    if (g > 0 && !work.empty()) *out += ", ";
    *out += work;
  }
  *out += "]}";
  return Status();
}

}  // namespace kvc

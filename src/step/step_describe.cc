// Writes the text of kvc_forward_describe: the work that a step plans.
#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "step/step.h"

namespace kvc {

std::string Step::describe_group(int32_t group) {
  std::string text;
  char line[512];
  for (size_t c = 0; c < layers_.work_classes().size(); ++c) {
    if (layers_.work_classes()[c].group != group) continue;
    const WorkPlan& plan = forward_->work_plan(c);
    const auto first = std::find_if(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const int64_t layers = std::count_if(first, layers_.end(), [&](const Layer& l) { return l.work_class == c; });
    const kvc_backend_layer& layer = first->backend;
    const int64_t k_bytes = layer.k.row_bytes + layer.k_scales.row_bytes;
    const int64_t key_bytes =
        k_bytes + (layer.row_kind == KVC_BACKEND_ROW_LATENT ? 0 : layer.v.row_bytes + layer.v_scales.row_bytes);
    int64_t bytes = 0;
    int64_t decode_items = 0;
    for (const kvc_backend_item& item : plan.items()) {
      bytes += int64_t{item.key_end - item.key_begin} * (item.head_end - item.head_begin) * key_bytes;
      decode_items += item.span_begin == item.span_end &&
                      item.q_end - item.q_begin <= layers_.work_classes()[c].shape.tiling.decode_max_queries;
    }
    int64_t split_items = 0;
    for (const kvc_backend_tile& tile : plan.tiles()) split_items += tile.item_end - tile.item_begin;
    std::snprintf(
        line, sizeof line,
        "%s{\"group\": %d, \"layers\": %" PRId64 ", \"kernel\": \"%s\", \"items\": %zu, \"decode_items\": %" PRId64
        ", \"split_tiles\": %zu, \"splits\": %" PRId64 ", \"prefix_groups\": %" PRId64 ", \"kv_bytes\": %" PRId64 "}",
        text.empty() ? "" : ", ", group, layers, context().backend().implementation(context().device()),
        plan.items().size(), decode_items, plan.tiles().size(), split_items, plan.num_prefix_groups(), bytes);
    text += line;
  }
  return text;
}

Status Step::describe(std::string* out) {
  const kvc_backend_rows& rows = forward_->batch->rows();
  *out = "{\"rows\": " + std::to_string(rows.num_rows) + ", \"tokens\": " + std::to_string(rows.num_tokens) +
         ", \"layer_begin\": " + std::to_string(forward_->kind.layers.begin) +
         ", \"layer_end\": " + std::to_string(forward_->kind.layers.end) + ", \"work\": [";
  for (int32_t g = 0; g < layers_.num_groups(); ++g) {
    const std::string work = describe_group(g);
    if (g > 0 && !work.empty()) *out += ", ";
    *out += work;
  }
  *out += "]}";
  return Status();
}

}  // namespace kvc

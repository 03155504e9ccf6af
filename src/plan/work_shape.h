// work_shape_of returns the WorkShape of a layer. This shape decides how the work of attention over the layer is cut.
#pragma once

#include "kernels/common/stored_format.h"
#include "plan/work_plan.h"

namespace kvc {

// tiling: the result of kvc_backend.tiling for the layer. parallel_items: the number of items that run at once. The
// caller sets the other fields, which depend on its cache or on the call.
inline WorkShape work_shape_of(const kvc_backend_layer& layer, const kvc_backend_tiling& tiling,
                               int32_t parallel_items) noexcept {
  WorkShape shape;
  shape.num_q_heads = layer.num_q_heads;
  shape.num_kv_heads = layer.num_kv_heads;
  shape.head_dim = layer.head_dim;
  shape.v_head_dim = layer.v_head_dim;
  shape.key_bytes = static_cast<int32_t>(kernels::row_bytes(layer.format.k, layer.head_dim) +
                                         kernels::row_bytes(layer.format.v, layer.v_head_dim));
  shape.page_size = layer.page_size;
  shape.visible = kernels::rule_of_layer(&layer);
  shape.tiling = tiling;
  shape.num_threads = parallel_items;
  return shape;
}

}  // namespace kvc

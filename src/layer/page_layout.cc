#include "layer/page_layout.h"

namespace kvc {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kScaleBytes = sizeof(float);

int64_t round_up(int64_t bytes, int64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

PageLayout page_layout(const kvc_backend_layer& layer) noexcept {
  PageLayout layout;
  const int64_t slots = int64_t{layer.num_kv_heads} * layer.page_size;
  const int64_t element_bytes = layer.dtype.bits / 8;
  const int64_t k_bytes = slots * layer.head_dim * element_bytes;
  const int64_t v_bytes = slots * layer.v_head_dim * element_bytes;
  layout.together = layer.head_dim == layer.v_head_dim;
  layout.token_scales = layer.dtype.code == kDLInt;
  const int64_t scale_bytes = layout.token_scales ? slots * kScaleBytes : 0;
  const auto padded = [&](int64_t rows, int64_t scales) {
    return layout.token_scales ? round_up(round_up(rows, kScaleBytes) + scales, kLineBytes) : rows;
  };
  if (layer.v_in_k != 0) {
    layout.k = {0, round_up(k_bytes, kScaleBytes), padded(k_bytes, scale_bytes)};
    layout.v = layout.k;
    layout.together = false;
    layout.page_bytes = layout.k.page_bytes;
    layout.token_bytes = (k_bytes + scale_bytes) / layer.page_size;
    return layout;
  }
  if (layout.together) {
    layout.page_bytes = padded(k_bytes + v_bytes, 2 * scale_bytes);
    const int64_t scales = round_up(k_bytes + v_bytes, kScaleBytes);
    layout.k = {0, scales, layout.page_bytes};
    layout.v = {k_bytes, scales + scale_bytes, layout.page_bytes};
  } else {
    layout.k = {0, round_up(k_bytes, kScaleBytes), padded(k_bytes, scale_bytes)};
    layout.v.page_bytes = padded(v_bytes, scale_bytes);
    layout.v.offset_bytes = layout.k.page_bytes * layer.num_pages;
    layout.v.scales_offset_bytes = layout.v.offset_bytes + round_up(v_bytes, kScaleBytes);
    layout.page_bytes = layout.k.page_bytes + layout.v.page_bytes;
  }
  layout.token_bytes = (k_bytes + v_bytes + 2 * scale_bytes) / layer.page_size;
  return layout;
}

}  // namespace kvc

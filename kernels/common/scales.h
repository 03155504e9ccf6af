// Scales of quantised pools: of each token and head (int8, in the pages), or of each head (fp8).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

KVC_HOST_DEVICE bool has_token_scales(const kvc_backend_scales* scales) {
  return scales->data != nullptr && scales->slot_stride_bytes != 0;
}

// The scales of one row: the first of them.
KVC_HOST_DEVICE float* token_scale(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(scales->data) + page * scales->page_stride_bytes +
                                  head * scales->head_stride_bytes + slot * scales->slot_stride_bytes);
}

// Floats from the scale of one kv head to that of the next.
KVC_HOST_DEVICE int64_t scale_head_stride(const kvc_backend_scales* scales) {
  return scales->head_stride_bytes / static_cast<int64_t>(sizeof(float));
}

// The scale of a whole head. It is 1 for a layer without scales, and for a layer whose tokens have scales.
KVC_HOST_DEVICE float head_scale(const kvc_backend_scales* scales, int32_t head) {
  return scales->data == nullptr || scales->slot_stride_bytes != 0 ? 1.0f : *token_scale(scales, 0, head, 0);
}

// The factor of a row of queries and a kv head.
KVC_HOST_DEVICE float row_factor(const kvc_backend_row_scales* scales, int32_t row, int32_t head) {
  return scales->data == nullptr ? 1.0f : scales->data[row * scales->row_stride + head * scales->head_stride];
}

// The scale of a stored row, of either kind.
KVC_HOST_DEVICE float scale_of(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return scales->data == nullptr ? 1.0f : *token_scale(scales, page, head, slot);
}

// The scale that append gives to an int8 row whose largest magnitude has these float32 bits: amax / 127. If that is 0,
// the scale is 1. A row that holds an infinity or a NaN has scale NaN, and its elements are stored as 0.
KVC_HOST_DEVICE float row_scale(uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= 0x7f800000u) return __builtin_nanf("");
  float largest;
  memcpy(&largest, &largest_magnitude_bits, sizeof largest);
  const float scale = largest / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

}  // namespace kvc::kernels

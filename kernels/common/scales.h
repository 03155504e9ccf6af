// Scales of quantised pools: an element is read as stored * scale.
// Two kinds: a scale for each token and head (int8; kept in the pages), or one for each head or for all (fp8).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

KVC_HOST_DEVICE bool has_token_scales(const kvc_backend_scales* scales) {
  return scales->data != nullptr && scales->slot_stride != 0;
}

// The scale of one token and head: a float of the scales' data.
KVC_HOST_DEVICE float* token_scale(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return scales->data + page * scales->page_stride + head * scales->head_stride + slot * scales->slot_stride;
}

// Of a whole head; 1 where there are none, and where tokens have their own.
KVC_HOST_DEVICE float head_scale(const kvc_backend_scales* scales, int32_t head) {
  return scales->data == nullptr || scales->slot_stride != 0 ? 1.0f : scales->data[head * scales->head_stride];
}

// Of a row of queries and a kv head.
KVC_HOST_DEVICE float row_factor(const kvc_backend_row_scales* scales, int32_t row, int32_t head) {
  return scales->data == nullptr ? 1.0f : scales->data[row * scales->row_stride + head * scales->head_stride];
}

// Of either kind.
KVC_HOST_DEVICE float scale_of(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return scales->data == nullptr ? 1.0f : *token_scale(scales, page, head, slot);
}

// The scale that append gives to an int8 row whose largest magnitude has these float32 bits: amax / 127. A row of zeros
// (or of what is no more, divided by 127) has scale 1; a row that holds an infinity or a NaN has scale NaN, and zeros.
KVC_HOST_DEVICE float row_scale(uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= 0x7f800000u) return __builtin_nanf("");
  float largest;
  memcpy(&largest, &largest_magnitude_bits, sizeof largest);
  const float scale = largest / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

}  // namespace kvc::kernels

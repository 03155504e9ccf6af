// Finds and computes the scales of quantised pools. int8 and uint4 have a scale for each token and head, in the pages.
// float8 has a scale for each head. float4 has a scale for each head, and each row has a scale for each block of dims.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

KVC_HOST_DEVICE bool has_token_scales(const kvc_backend_scales* scales) {
  return scales->data != nullptr && scales->slot_stride_bytes != 0;
}

// Returns the address of the scale of a stored row. If tokens have no scales of their own, this is the scale of the
// row's head.
KVC_HOST_DEVICE float* token_scale(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return reinterpret_cast<float*>(static_cast<unsigned char*>(scales->data) + page * scales->page_stride_bytes +
                                  head * scales->head_stride_bytes + slot * scales->slot_stride_bytes);
}

// Returns the number of floats from the scale of one kv head to the scale of the next.
KVC_HOST_DEVICE int64_t scale_head_stride(const kvc_backend_scales* scales) {
  return scales->head_stride_bytes / static_cast<int64_t>(sizeof(float));
}

// Returns the scale of a whole head. It is 1 if the layer has no scales, or if its tokens have scales.
KVC_HOST_DEVICE float head_scale(const kvc_backend_scales* scales, int32_t head) {
  return scales->data == nullptr || scales->slot_stride_bytes != 0 ? 1.0f : *token_scale(scales, 0, head, 0);
}

// Returns the scale that a call gives for q, K or V of a batch row and kv head, besides the scales of the layer.
KVC_HOST_DEVICE float row_factor(const kvc_backend_row_scales* scales, int32_t row, int32_t head) {
  return scales->data == nullptr ? 1.0f : scales->data[row * scales->row_stride + head * scales->head_stride];
}

// Returns the scale of a stored row: the scale of its token and head, or the scale of its head, or 1 if there are no
// scales.
KVC_HOST_DEVICE float scale_of(const kvc_backend_scales* scales, int64_t page, int32_t head, int64_t slot) {
  return scales->data == nullptr ? 1.0f : *token_scale(scales, page, head, slot);
}

// Returns the scale that append gives to an int8 row: the largest magnitude of the row / 127, or 1 if this quotient is
// 0. A row with an infinity or a NaN has scale NaN, and its elements are stored as 0. largest_magnitude_bits: the
// largest magnitude, as float32 bits.
KVC_HOST_DEVICE float row_scale(uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= 0x7f800000u) return __builtin_nanf("");
  float largest;
  memcpy(&largest, &largest_magnitude_bits, sizeof largest);
  const float scale = largest / 127.0f;
  return scale == 0.0f ? 1.0f : scale;
}

// ---- uint4: an element is read as (stored - zero point) * scale -----------------------------------

// The numbers by which a row of uint4 is stored. An element x becomes x * inverse + zero in float32, rounded to nearest
// (halves up) and limited to 0..15.
struct NibbleScale {
  float stored;   // the scale, whose lowest 4 bits are replaced by the zero point
  float inverse;  // 1 / scale, computed before the lowest bits of the scale are replaced
  float zero;     // the zero point, 0..15
};

// Returns the scale of a row whose elements lie in [least, largest]. The scale is NaN if an element, or the difference
// of `largest` and `least`, is not finite. Then all elements are stored as 0.
KVC_HOST_DEVICE NibbleScale nibble_scale(float least, float largest) {
  if (!(largest - least <= 3.40282347e38f)) return {float_from_bits(0x7fc00000u), 0.0f, 0.0f};
  const float range = (largest - least) / 15.0f, scale = range > 1e-6f ? range : 1e-6f;
  const float rounded = -least / scale + 0.5f;
  const float zero = rounded >= 15.0f ? 15.0f
                     : rounded > 0.0f ? static_cast<float>(static_cast<int32_t>(rounded))
                                      : 0.0f;
  return {float_from_bits((float_bits(scale) & ~15u) | static_cast<uint32_t>(zero)), 1.0f / scale, zero};
}

KVC_HOST_DEVICE int32_t zero_point_of(float stored_scale) {
  return static_cast<int32_t>(float_bits(stored_scale) & 15u);
}
KVC_HOST_DEVICE float without_zero_point(float stored_scale) {
  return float_from_bits(float_bits(stored_scale) & ~15u);
}

// Returns how x is stored in a row with that scale.
KVC_HOST_DEVICE uint32_t nibble_of(float x, const NibbleScale& scale) {
  if (scale.stored != scale.stored) return 0;
  const float rounded = x * scale.inverse + scale.zero + 0.5f;
  return static_cast<uint32_t>(rounded < 0.0f ? 0.0f : rounded > 15.0f ? 15.0f : rounded);
}

// ---- float4: an element is read as stored * scale of its block * scale of the head ------------------

// Returns a block's scale from its stored byte. The sign bit is ignored.
KVC_HOST_DEVICE float block_scale(unsigned char bits) { return to_float(E4m3{static_cast<uint8_t>(bits & 0x7f)}); }

// Returns the scale of a block. Before that, each element of the block is divided by the scale of the head.
// largest_magnitude_bits: the largest magnitude of these quotients, as float32 bits. The scale is a sixth of this
// magnitude, limited to 2^-9..448 and rounded to nearest even. It is NaN if a quotient is not finite.
constexpr uint8_t kNanScale = 0x7f;
KVC_HOST_DEVICE E4m3 scale_of_block(uint32_t largest_magnitude_bits) {
  const float largest = float_from_bits(largest_magnitude_bits) / 6.0f;
  E4m3 scale = {kNanScale};
  if (largest_magnitude_bits < 0x7f800000u) narrow(largest > 0.001953125f ? largest : 0.001953125f, &scale);
  return scale;
}

// Returns how a quotient is stored in a block with that scale: as 0 if the scale is NaN.
KVC_HOST_DEVICE E2m1 element_of_block(float quotient, E4m3 scale) {
  E2m1 element = {0};
  if (scale.bits != kNanScale) narrow(quotient / to_float(scale), &element);
  return element;
}

}  // namespace kvc::kernels

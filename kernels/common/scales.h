// Scales of quantised pools: of each token and head (int8 and uint4, in the pages), or of each head (float8; float4,
// whose blocks of dims have scales in the row too).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
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

// ---- uint4: an element is read as (stored - zero point) * scale -----------------------------------

// How a row of uint4 is stored: x becomes x * inverse + zero in float32, rounded to nearest, halves up, and limited to
// 0..15.
struct NibbleScale {
  float stored;   // the scale, with the zero point in its lowest 4 bits
  float inverse;  // 1 / scale, before the zero point took those bits
  float zero;     // 0..15
};

// The scale of a row between `least` and `largest`. NaN if either is not finite, or if their distance is not. Then all
// elements are stored as 0.
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

// Stores n elements, an even number, by the scale of their row.
KVC_HOST_DEVICE void store_nibbles(const float* row, int32_t n, const NibbleScale& scale, unsigned char* target) {
  if (scale.stored != scale.stored) {
    memset(target, 0, static_cast<size_t>(n / 2));
    return;
  }
  const auto nibble = [&](float x) {
    const float rounded = x * scale.inverse + scale.zero + 0.5f;
    return static_cast<int32_t>(rounded < 0.0f ? 0.0f : rounded > 15.0f ? 15.0f : rounded);
  };
  for (int32_t i = 0; i < n / 2; ++i) {
    target[i] = static_cast<unsigned char>(nibble(row[2 * i]) | nibble(row[2 * i + 1]) << 4);
  }
}

// ---- float4: an element is read as stored * scale of its block * scale of the head ------------------

// The bits of a scale of a block. Its sign is not read.
KVC_HOST_DEVICE float block_scale(unsigned char bits) { return widen(E4m3{static_cast<uint8_t>(bits & 0x7f)}); }

// Stores n elements, a multiple of kBlockDims, and after them the scale of each block. A block has the scale amax / 6
// of its quotients by `head_scale`, within 2^-9..448, rounded to even. A block whose quotients are not all finite has
// scale NaN, and its elements are stored as 0.
KVC_HOST_DEVICE void store_blocks(const float* row, int32_t n, float head_scale, unsigned char* target) {
  for (int32_t begin = 0; begin < n; begin += kBlockDims) {
    float quotients[kBlockDims];
    uint32_t magnitude = 0;  // bits: an infinity or a NaN has the largest
    for (int32_t i = 0; i < kBlockDims; ++i) {
      quotients[i] = row[begin + i] / head_scale;
      const uint32_t bits = float_bits(quotients[i]) & 0x7fffffffu;
      magnitude = bits > magnitude ? bits : magnitude;
    }
    const float largest = float_from_bits(magnitude) / 6.0f;
    E4m3 scale = {0x7f};
    if (magnitude < 0x7f800000u) narrow(largest > 0.001953125f ? largest : 0.001953125f, &scale);
    target[n / 2 + begin / kBlockDims] = scale.bits;
    const float divisor = widen(scale);
    for (int32_t i = 0; i < kBlockDims; i += 2) {
      E2m1 pair[2] = {{0}, {0}};
      for (int32_t j = 0; j < 2 && scale.bits != 0x7f; ++j) narrow(quotients[i + j] / divisor, &pair[j]);
      target[(begin + i) / 2] = static_cast<unsigned char>(pair[0].bits | pair[1].bits << 4);
    }
  }
}

}  // namespace kvc::kernels

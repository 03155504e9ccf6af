// The packed MLA row "fp8_ds_mla" of DeepSeek-V3.2, as vLLM and FlashMLA store it. A row has 656 bytes:
//
//   512 float8_e4m3fn, the latent part
//     4 float32, the scales of 128 dims of the latent part each
//    64 bfloat16, the rotary part
//
// An element of the latent part is read as stored * scale.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"

namespace kvc::kernels {

constexpr int32_t kDsMlaLatentDims = 512, kDsMlaRotaryDims = 64, kDsMlaDims = kDsMlaLatentDims + kDsMlaRotaryDims;
constexpr int32_t kDsMlaScaleDims = 128;  // number of neighbouring dims that share a scale
constexpr int32_t kDsMlaRowBytes = 656;
constexpr int32_t kDsMlaRotaryAt = kDsMlaLatentDims + kDsMlaLatentDims / kDsMlaScaleDims * 4;  // byte in the row
static_assert(kDsMlaRowBytes == kDsMlaRotaryAt + kDsMlaRotaryDims * 2);

KVC_HOST_DEVICE float ds_mla_scale(const unsigned char* row, int32_t dim) {
  float scale;
  memcpy(&scale, row + kDsMlaLatentDims + dim / kDsMlaScaleDims * int64_t{4}, sizeof scale);
  return scale;
}

KVC_HOST_DEVICE void set_ds_mla_scale(unsigned char* row, int32_t dim, float scale) {
  memcpy(row + kDsMlaLatentDims + dim / kDsMlaScaleDims * int64_t{4}, &scale, sizeof scale);
}

// Returns dim `dim` of a stored row.
KVC_HOST_DEVICE float load_ds_mla(const unsigned char* row, int32_t dim) {
  if (dim >= kDsMlaLatentDims) return load_element(Type::kBf16, row + kDsMlaRotaryAt, dim - kDsMlaLatentDims);
  return widen(E4m3{row[dim]}) * ds_mla_scale(row, dim);
}

// Returns the scale of dims whose largest magnitude has these float32 bits: the smallest power of two that is at least
// amax / 448 and at least 1e-4. If a magnitude is infinite or NaN, the scale is NaN and all of its elements are stored
// as 0.
KVC_HOST_DEVICE float ds_mla_scale_of(uint32_t largest_magnitude_bits) {
  if (largest_magnitude_bits >= 0x7f800000u) return float_from_bits(0x7fc00000u);
  const float quotient = float_from_bits(largest_magnitude_bits) / 448.0f;
  const uint32_t bits = float_bits(quotient > 1e-4f ? quotient : 1e-4f);
  return float_from_bits((bits + 0x7fffffu) & 0x7f800000u);
}

}  // namespace kvc::kernels

// Block rows: rows in which blocks of neighbouring dims have a scale (the packed row formats, row_formats.h). An
// element is read as stored * scale of its block. Dims after the last block have no scale.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"

namespace kvc::kernels {

enum class ScaleType : uint8_t {
  kF32,
  kE4m3,  // the sign bit is ignored
  kE8m0   // 2^(byte - 127); 255 is NaN
};

constexpr int32_t kEveryDim = 1 << 30;  // block_dims of rows all of whose dims are in blocks

// The values of a row's descriptor that kernels need. They are the same for K and V of a layer.
struct BlockRow {
  Type element;  // of the dims in blocks: kE4m3 or kE2m1
  Type rest;     // of the other dims: kBf16 or kE4m3
  ScaleType scale_type;
  uint8_t scale_bytes;
  int32_t block_dims;    // number of dims in blocks
  int32_t scale_shift;   // log2 of the number of dims of a block
  int32_t rest_at;       // the byte of the row at which the other dims begin
  int32_t scales_at;     // the byte of the row at which the scales begin; -1: they lie after the rows of the page
  int32_t order, count;  // as in place_of_scale
  float least;           // the least scale, before it is rounded up to a power of two
};

KVC_HOST_DEVICE BlockRow block_row(const kvc_backend_layer& layer) {
  const RowFormat& row = layer.format.k;
  const kvc_backend_segment &segment = row.segments[0], &rest = row.segments[1];
  const ScaleFormat& scales = segment.scales;
  const bool in_page = scales.place == KVC_BACKEND_SCALES_PAGE, follow = scales.place == KVC_BACKEND_SCALES_SEGMENT;
  const int32_t dims = segment.dims == 0 ? layer.head_dim : segment.dims, bytes = dims * segment.dtype.bits / 8;
  BlockRow shape = {};
  shape.element = type_of(segment.dtype);
  shape.rest = type_of(rest.dtype);
  shape.scale_bytes = scales.dtype.bits / 8;
  shape.scale_type = shape.scale_bytes == 4                  ? ScaleType::kF32
                     : scales.dtype.code == kDLFloat8_e4m3fn ? ScaleType::kE4m3
                                                             : ScaleType::kE8m0;
  shape.block_dims = segment.dims == 0 ? kEveryDim : dims;
  while (1 << shape.scale_shift < scales.dims) ++shape.scale_shift;
  shape.count = static_cast<int32_t>(num_scales(dims, scales.dims));
  shape.order = scales.order;
  shape.rest_at = bytes + (follow ? shape.count * shape.scale_bytes : 0);
  shape.scales_at = in_page ? -1 : follow ? bytes : bytes + (layer.head_dim - dims) * rest.dtype.bits / 8;
  shape.least = shape.element == Type::kE2m1 ? 1.17549435e-38f : in_page ? 1e-4f / 448.0f : 1e-4f;
  return shape;
}

// Returns the address of a row's scales. page_scales: the address of the row's scales in the page after the rows. It is
// used only if the scales of the layer lie there.
KVC_HOST_DEVICE const unsigned char* scales_of_row(const BlockRow& shape, const unsigned char* row,
                                                   const void* page_scales) {
  return shape.scales_at < 0 ? static_cast<const unsigned char*>(page_scales) : row + shape.scales_at;
}

// Returns the byte of a block's scale, counted from the row's first scale.
KVC_HOST_DEVICE int32_t byte_of_block(const BlockRow& shape, int32_t block) {
  if (shape.order > 1) block = block % shape.order * (shape.count / shape.order) + block / shape.order;
  return block * shape.scale_bytes;
}

// Returns the scale of the block of dim `dim`. scales: the result of scales_of_row.
KVC_HOST_DEVICE float scale_of_dim(const BlockRow& shape, const unsigned char* scales, int32_t dim) {
  const unsigned char* const p = scales + byte_of_block(shape, dim >> shape.scale_shift);
  if (shape.scale_type == ScaleType::kE4m3) return block_scale(*p);
  if (shape.scale_type == ScaleType::kE8m0) {
    return float_from_bits(*p == 255 ? 0x7fc00000u : *p == 0 ? 0x00400000u : uint32_t{*p} << 23);
  }
  float scale;
  memcpy(&scale, p, sizeof scale);
  return scale;
}

KVC_HOST_DEVICE void set_scale_of_dim(const BlockRow& shape, unsigned char* scales, int32_t dim, float scale) {
  unsigned char* const p = scales + byte_of_block(shape, dim >> shape.scale_shift);
  if (shape.scale_type == ScaleType::kF32) {
    memcpy(p, &scale, sizeof scale);
  } else if (shape.scale_type == ScaleType::kE4m3) {
    store_element(Type::kE4m3, p, 0, scale);
  } else {
    *p = static_cast<unsigned char>(scale == scale ? float_bits(scale) >> 23 : 255);
  }
}

// Returns dim `dim` of a stored row.
KVC_HOST_DEVICE float load_of_block_row(const BlockRow& shape, const unsigned char* row, const unsigned char* scales,
                                        int32_t dim) {
  if (dim >= shape.block_dims) return load_element(shape.rest, row + shape.rest_at, dim - shape.block_dims);
  return load_element(shape.element, row, dim) * scale_of_dim(shape, scales, dim);
}

// Returns the scale of a block whose largest magnitude has these float32 bits. A scale of type e4m3 is that of float4
// (scale_of_block, scales.h). Any other scale is the smallest power of two that is at least `least`, and at least the
// largest magnitude / the largest element. If a magnitude is infinite or NaN, the scale is NaN and all elements of the
// block are stored as 0.
KVC_HOST_DEVICE float scale_of_magnitude(const BlockRow& shape, uint32_t largest_magnitude_bits) {
  if (shape.scale_type == ScaleType::kE4m3) return to_float(scale_of_block(largest_magnitude_bits));
  if (largest_magnitude_bits >= 0x7f800000u) return float_from_bits(0x7fc00000u);
  const float quotient = float_from_bits(largest_magnitude_bits) / (shape.element == Type::kE2m1 ? 6.0f : 448.0f);
  const uint32_t bits = float_bits(quotient > shape.least ? quotient : shape.least);
  return float_from_bits((bits + 0x7fffffu) & 0x7f800000u);
}

// Spreads 8 elements of 4 bits to 8 bytes. As float8_e4m3fn, each byte is the element / 64.
constexpr float kSpreadUnit = 64.0f;
KVC_HOST_DEVICE uint64_t spread_nibbles(uint32_t eight) {
  uint64_t spread = (eight | static_cast<uint64_t>(eight) << 16) & 0x0000ffff0000ffffull;
  spread = (spread | spread << 8) & 0x00ff00ff00ff00ffull;
  spread = (spread | spread << 4) & 0x0f0f0f0f0f0f0f0full;
  return (spread & 0x0707070707070707ull) << 2 | (spread & 0x0808080808080808ull) << 4;
}

}  // namespace kvc::kernels

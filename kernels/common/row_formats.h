// The packed row formats (KVC_ROW_FORMAT_*): a table of their descriptors. In each format, blocks of neighbouring dims
// have a scale. Some formats have further dims, which have no scales.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/stored_format.h"

namespace kvc::kernels {

// Which rows may have a packed row format.
enum class RowUse : uint8_t {
  kLatent,  // MLA rows, of exactly `dims` and `v_dims` dims
  kAny      // rows of K and V, rows of keys only, and MLA rows whose V is the whole row; of multiples of `dims` dims
};

struct PackedRowFormat {
  int32_t id;        // KVC_ROW_FORMAT_*
  const char* name;  // id without KVC_ROW_FORMAT_
  RowUse use;
  int32_t dims, v_dims;
  DLDataType element;
  uint16_t element_dims;  // number of dims with scales, 0: all
  DLDataType rest;        // the type of the other dims
  DLDataType scale;
  uint16_t scale_dims;       // number of neighbouring dims that share a scale
  uint8_t place, order;      // as in ScaleFormat
  uint16_t scales_multiple;  // as in RowFormat
};

constexpr DLDataType kE4m3Dtype = {kDLFloat8_e4m3fn, 8, 1}, kE2m1Dtype = {kDLFloat4_e2m1fn, 4, 1},
                     kE8m0Dtype = {kDLFloat8_e8m0fnu, 8, 1}, kF32Dtype = {kDLFloat, 32, 1},
                     kBf16Dtype = {kDLBfloat, 16, 1};

constexpr PackedRowFormat kPackedRowFormats[] = {
    {KVC_ROW_FORMAT_FP8_DS_MLA, "FP8_DS_MLA", RowUse::kLatent, 576, 512, kE4m3Dtype, 512, kBf16Dtype, kF32Dtype, 128,
     KVC_BACKEND_SCALES_SEGMENT, 0, 0},
    {KVC_ROW_FORMAT_FP8_DS_V4, "FP8_DS_V4", RowUse::kLatent, 512, 512, kE4m3Dtype, 448, kBf16Dtype, kE8m0Dtype, 64,
     KVC_BACKEND_SCALES_PAGE, 0, 8},
    {KVC_ROW_FORMAT_MXFP4,
     "MXFP4",
     RowUse::kAny,
     32,
     0,
     kE2m1Dtype,
     0,
     {},
     kE8m0Dtype,
     32,
     KVC_BACKEND_SCALES_PAGE,
     0,
     4},
    {KVC_ROW_FORMAT_MXFP8,
     "MXFP8",
     RowUse::kAny,
     32,
     0,
     kE4m3Dtype,
     0,
     {},
     kE8m0Dtype,
     32,
     KVC_BACKEND_SCALES_PAGE,
     0,
     4},
    {KVC_ROW_FORMAT_FP8_BLOCKS,
     "FP8_BLOCKS",
     RowUse::kAny,
     16,
     0,
     kE4m3Dtype,
     0,
     {},
     kF32Dtype,
     128,
     KVC_BACKEND_SCALES_PAGE,
     0,
     0},
    {KVC_ROW_FORMAT_NVFP4,
     "NVFP4",
     RowUse::kAny,
     16,
     0,
     kE2m1Dtype,
     0,
     {},
     kE4m3Dtype,
     16,
     KVC_BACKEND_SCALES_PAGE,
     0,
     4},
    {KVC_ROW_FORMAT_NVFP4_DS_MLA, "NVFP4_DS_MLA", RowUse::kLatent, 576, 512, kE2m1Dtype, 512, kE4m3Dtype, kE4m3Dtype,
     16, KVC_BACKEND_SCALES_ROW, 4, 0},
};

// Returns the format with this id, or null.
constexpr const PackedRowFormat* packed_row_format(int32_t id) {
  for (const PackedRowFormat& format : kPackedRowFormats) {
    if (format.id == id) return &format;
  }
  return nullptr;
}

// Returns the descriptor of a format for a layer. latent: whether the layer has MLA rows. If scales lie in the page,
// the descriptor also pads pages. Pages of MLA rows are padded to a multiple of the bytes of a row, as servers do.
// Other pages are padded to whole cache lines.
inline StoredFormat descriptor_of(const PackedRowFormat& packed, bool latent, int32_t head_dim) {
  StoredFormat format = format_without_scales(packed.element);
  kvc_backend_segment& segment = format.k.segments[0];
  segment.dims = packed.element_dims;
  segment.scales.dtype = packed.scale;
  segment.scales.dims = packed.scale_dims;
  segment.scales.tokens = segment.scales.heads = 1;
  segment.scales.place = packed.place;
  segment.scales.order = packed.order;
  format.k.scales_multiple = packed.scales_multiple;
  if (packed.element_dims != 0) {
    format.k.num_segments = 2;
    format.k.segments[1].dtype = packed.rest;
  }
  format.v = format.k;
  if (packed.place != KVC_BACKEND_SCALES_PAGE) return format;
  format.page_multiple = latent ? static_cast<uint16_t>(row_bytes(format.k, head_dim)) : 64;
  return format;
}

// Whether a layer may have rows of a format.
inline bool fits(const PackedRowFormat& format, const kvc_backend_layer& layer) {
  const int32_t dims = layer.head_dim, v_dims = layer.v_head_dim;
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) return false;
  if (format.use == RowUse::kLatent) return has_latent_rows(layer) && dims == format.dims && v_dims == format.v_dims;
  return dims % format.dims == 0 && v_dims % format.dims == 0 && (!has_latent_rows(layer) || dims == v_dims);
}

// Returns the packed row format of a layer, or null.
inline const PackedRowFormat* packed_row_format(const kvc_backend_layer& layer) {
  if (!has_block_rows(layer.format)) return nullptr;
  for (const PackedRowFormat& packed : kPackedRowFormats) {
    if (same_format(layer.format, descriptor_of(packed, has_latent_rows(layer), layer.head_dim))) return &packed;
  }
  return nullptr;
}

}  // namespace kvc::kernels

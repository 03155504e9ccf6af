// StoredFormat describes how a layer stores K and V. The functions of this file use it to compute the sizes of rows,
// scales and pages, and the place of every element and scale. Copies, exports and checks use these sizes, so they need
// no dtype.
//
// A row holds the elements of one token and head. It has up to KVC_BACKEND_MAX_SEGMENTS segments. Each segment has its
// own format, for example 512 dims of float8 and then 64 dims of bfloat16. Scales lie in the row, or in the page after
// its rows, or outside the pages. tests/layer/stored_format_test.cc describes the packed rows of current models in this
// way.
//
// Backends store only the formats that `stored_format` returns, and those of row_formats.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

using StoredFormat = kvc_backend_format;
using RowFormat = kvc_backend_row_format;
using ScaleFormat = kvc_backend_scale_format;

KVC_HOST_DEVICE int64_t round_up_bytes(int64_t bytes, int64_t multiple) {
  return multiple > 1 ? (bytes + multiple - 1) / multiple * multiple : bytes;
}

// ---- Scales ---------------------------------------------------------------------------------------

KVC_HOST_DEVICE bool has_scales(const ScaleFormat& scales) { return scales.place != KVC_BACKEND_SCALES_NONE; }

// Returns the number of scales for n tokens, heads or dims. `shared` neighbours share a scale; 0 means that all n share
// one.
KVC_HOST_DEVICE int64_t num_scales(int64_t n, uint16_t shared) { return shared == 0 ? 1 : (n + shared - 1) / shared; }

KVC_HOST_DEVICE int64_t scale_bytes(const ScaleFormat& scales) {
  return int64_t{scales.dtype.bits / 8} * (scales.values == 0 ? 1 : scales.values);
}

// Returns the bytes of the scales of a segment with `dims` dims, for one row, if they lie at `place`. Returns 0 if they
// lie elsewhere.
KVC_HOST_DEVICE int64_t scales_at(const ScaleFormat& scales, int32_t place, int64_t dims) {
  return scales.place == place && has_scales(scales) ? num_scales(dims, scales.dims) * scale_bytes(scales) : 0;
}

// Returns the place of scale number `index` among the `count` stored scales of its segment. If scales.order is above 1,
// scales are not stored in ascending order: those with the same index % order lie together.
KVC_HOST_DEVICE int64_t place_of_scale(const ScaleFormat& scales, int64_t index, int64_t count) {
  const int64_t ranks = scales.order;
  return ranks > 1 ? index % ranks * (count / ranks) + index / ranks : index;
}

// ---- Rows -----------------------------------------------------------------------------------------

// The first dim of a segment, and the number of its dims.
struct SegmentDims {
  int32_t first, count;
};

KVC_HOST_DEVICE SegmentDims dims_of_segment(const RowFormat& row, int32_t row_dims, int32_t index) {
  int32_t first = 0;
  for (int32_t i = 0; i < index; ++i) first += row.segments[i].dims;
  const int32_t own = row.segments[index].dims;
  return {first, own == 0 ? row_dims - first : own};
}

KVC_HOST_DEVICE int32_t segment_of_dim(const RowFormat& row, int32_t row_dims, int32_t dim) {
  int32_t index = 0;
  while (index + 1 < row.num_segments) {
    const SegmentDims dims = dims_of_segment(row, row_dims, index);
    if (dim < dims.first + dims.count) break;
    ++index;
  }
  return index;
}

// Returns the bytes of the elements of a segment with `dims` dims.
KVC_HOST_DEVICE int64_t segment_bytes(const kvc_backend_segment& segment, int64_t dims) {
  return (dims * segment.dtype.bits + 7) / 8;
}

// Returns the bytes of the segments [0, count) of a row. They include the scales that lie directly after the elements
// of their segment.
KVC_HOST_DEVICE int64_t bytes_of_segments(const RowFormat& row, int32_t row_dims, int32_t count) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < count; ++i) {
    const kvc_backend_segment& segment = row.segments[i];
    const int32_t dims = dims_of_segment(row, row_dims, i).count;
    bytes += segment_bytes(segment, dims) + scales_at(segment.scales, KVC_BACKEND_SCALES_SEGMENT, dims);
  }
  return bytes;
}

// Returns the bytes of one row's scales that lie at `place` and belong to the segments [0, count).
KVC_HOST_DEVICE int64_t bytes_of_scales(const RowFormat& row, int32_t row_dims, int32_t count, int32_t place) {
  int64_t bytes = 0;
  for (int32_t i = 0; i < count; ++i) {
    bytes += scales_at(row.segments[i].scales, place, dims_of_segment(row, row_dims, i).count);
  }
  return bytes;
}

// Returns the bytes of a row of `dims` dims, with the scales and the padding that lie in it.
KVC_HOST_DEVICE int64_t row_bytes(const RowFormat& row, int32_t dims) {
  return round_up_bytes(bytes_of_segments(row, dims, row.num_segments) +
                            bytes_of_scales(row, dims, row.num_segments, KVC_BACKEND_SCALES_ROW),
                        row.row_multiple);
}

// keys_only: the layer stores K and no V. has_latent_rows: the layer stores MLA rows, in which V is a part of K.
KVC_HOST_DEVICE bool keys_only(const kvc_backend_layer& layer) {
  return layer.row_kind == KVC_BACKEND_ROW_LATENT && layer.v_head_dim == 0;
}
KVC_HOST_DEVICE bool has_latent_rows(const kvc_backend_layer& layer) {
  return layer.row_kind == KVC_BACKEND_ROW_LATENT && layer.v_head_dim > 0;
}

// Returns the bytes of one row's scales that lie after the rows of its page, with their padding.
KVC_HOST_DEVICE int64_t page_scale_bytes(const RowFormat& row, int32_t dims) {
  return round_up_bytes(bytes_of_scales(row, dims, row.num_segments, KVC_BACKEND_SCALES_PAGE), row.scales_multiple);
}

// Returns the number of an element's lowest bit. Bit 0 is the lowest bit of the row's first byte.
KVC_HOST_DEVICE int64_t bit_of_element(const RowFormat& row, int32_t row_dims, int32_t dim) {
  const int32_t index = segment_of_dim(row, row_dims, dim);
  const int32_t within = dim - dims_of_segment(row, row_dims, index).first;
  return bytes_of_segments(row, row_dims, index) * 8 + int64_t{within} * row.segments[index].dtype.bits;
}

// Returns the byte at which the scale of a dim begins. It is counted from the row's first byte if the scale lies in the
// row. Otherwise it is counted from the first byte of the row's scales.
KVC_HOST_DEVICE int64_t byte_of_scale(const RowFormat& row, int32_t row_dims, int32_t dim) {
  const int32_t index = segment_of_dim(row, row_dims, dim);
  const SegmentDims dims = dims_of_segment(row, row_dims, index);
  const kvc_backend_segment& segment = row.segments[index];
  const ScaleFormat& scales = segment.scales;
  const int64_t count = num_scales(dims.count, scales.dims);
  const int64_t number = scales.dims == 0 ? 0 : (dim - dims.first) / scales.dims;
  const int64_t within = place_of_scale(scales, number, count) * scale_bytes(scales);
  if (scales.place == KVC_BACKEND_SCALES_SEGMENT) {
    return bytes_of_segments(row, row_dims, index) + segment_bytes(segment, dims.count) + within;
  }
  const int64_t before = bytes_of_scales(row, row_dims, index, scales.place);
  if (scales.place != KVC_BACKEND_SCALES_ROW) return before + within;
  return bytes_of_segments(row, row_dims, row.num_segments) + before + within;
}

// Whether a row is a plain array, as in a tensor: elements of whole bytes, with no scales or padding in it.
KVC_HOST_DEVICE bool is_array(const RowFormat& row) {
  const kvc_backend_segment& segment = row.segments[0];
  const bool inline_scales =
      segment.scales.place == KVC_BACKEND_SCALES_SEGMENT || segment.scales.place == KVC_BACKEND_SCALES_ROW;
  return row.num_segments == 1 && row.row_multiple <= 1 && segment.dtype.bits % 8 == 0 && !inline_scales;
}

// ---- The formats that backends store --------------------------------------------------------------

// The dtypes that `stored_format` supports, for messages.
constexpr const char* kStoredDtypes =
    "float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, int8, uint4, float4_e2m1fn";

// K and V have the same dtype and no scales.
KVC_HOST_DEVICE StoredFormat format_without_scales(DLDataType dtype) {
  StoredFormat format = {};
  format.k.num_segments = 1;
  format.k.segments[0].dtype = dtype;
  format.v = format.k;
  return format;
}

// float8: each kv head has one constant scale.
KVC_HOST_DEVICE StoredFormat float8_format(DLDataType dtype) {
  StoredFormat format = format_without_scales(dtype);
  ScaleFormat& scales = format.k.segments[0].scales;
  scales.dtype = {kDLFloat, 32, 1};
  scales.heads = 1;
  scales.place = KVC_BACKEND_SCALES_APART;
  format.v = format.k;
  return format;
}

// int8 and uint4: each row has a scale, which lies in the page after the rows. A page is padded to whole cache lines,
// so rows are aligned as they are without scales.
KVC_HOST_DEVICE StoredFormat format_with_row_scales(DLDataType dtype) {
  StoredFormat format = format_without_scales(dtype);
  if (dtype.bits == 4) format.k.segments[0].encoding = KVC_BACKEND_ENCODING_ROTATED;
  ScaleFormat& scales = format.k.segments[0].scales;
  scales.dtype = {kDLFloat, 32, 1};
  scales.tokens = scales.heads = 1;
  scales.place = KVC_BACKEND_SCALES_PAGE;
  format.v = format.k;
  format.page_multiple = 64;
  return format;
}

// float4: each block of 16 dims has a scale, which lies in the row after the elements. Each kv head has a constant
// scale, by which the scales of its blocks are multiplied.
KVC_HOST_DEVICE StoredFormat float4_format(DLDataType dtype) {
  StoredFormat format = format_without_scales(dtype);
  kvc_backend_segment& segment = format.k.segments[0];
  segment.outer = float8_format(dtype).k.segments[0].scales;
  segment.scales.dtype = {kDLFloat8_e4m3fn, 8, 1};
  segment.scales.dims = kBlockDims;
  segment.scales.tokens = segment.scales.heads = 1;
  segment.scales.place = KVC_BACKEND_SCALES_ROW;
  format.v = format.k;
  return format;
}

// Returns the format in which layers of a dtype are stored. If no backend stores the dtype, check_layer
// refuses the result.
KVC_HOST_DEVICE StoredFormat stored_format(DLDataType dtype) {
  switch (type_of(dtype)) {
    case Type::kE4m3:
    case Type::kE5m2:
      return float8_format(dtype);
    case Type::kI8:
    case Type::kU4:
      return format_with_row_scales(dtype);
    case Type::kE2m1:
      return float4_format(dtype);
    default:
      return format_without_scales(dtype);
  }
}

KVC_HOST_DEVICE bool same_format(const StoredFormat& a, const StoredFormat& b) {
  return memcmp(&a, &b, sizeof a) == 0;  // the struct has no padding bytes
}
static_assert(sizeof(ScaleFormat) == 14 && sizeof(kvc_backend_segment) == 2 * sizeof(ScaleFormat) + 8);
static_assert(sizeof(RowFormat) == KVC_BACKEND_MAX_SEGMENTS * sizeof(kvc_backend_segment) + 8);
static_assert(sizeof(StoredFormat) == 2 * sizeof(RowFormat) + 8);

// Returns the dtype of a layer's elements. In rows of two types, it is the dtype of the first dims. K and V have the
// same dtype in all layers that check_layer accepts.
KVC_HOST_DEVICE DLDataType stored_dtype(const kvc_backend_layer& layer) { return layer.format.k.segments[0].dtype; }

// Whether rows are block rows (block_row.h): blocks of dims have scales, and these scales have no outer scales.
KVC_HOST_DEVICE bool has_block_rows(const StoredFormat& format) {
  const kvc_backend_segment& segment = format.k.segments[0];
  return segment.scales.dims > 0 && !has_scales(segment.outer);
}

KVC_HOST_DEVICE Type stored_type(const kvc_backend_layer& layer) {
  return has_block_rows(layer.format) ? Type::kBlockRow : type_of(stored_dtype(layer));
}

// Whether the scales of block rows lie in the page after the rows.
KVC_HOST_DEVICE bool has_page_blocks(const StoredFormat& format) {
  return has_block_rows(format) && format.k.segments[0].scales.place == KVC_BACKEND_SCALES_PAGE;
}

// Returns the type of the rows of a tensor that is given to a layer. A tensor of the layer's own dtype has rows as
// stored.
KVC_HOST_DEVICE Type type_of_rows(const kvc_backend_layer& layer, DLDataType dtype) {
  return type_of(dtype) == type_of(stored_dtype(layer)) ? stored_type(layer) : type_of(dtype);
}

// Whether rows are stored rotated (hadamard.h). Then each row has a zero point.
KVC_HOST_DEVICE bool has_rotated_rows(const StoredFormat& format) {
  return format.k.segments[0].encoding == KVC_BACKEND_ENCODING_ROTATED;
}

// Whether scales of blocks lie in the row after all elements. Then the bytes of V in an MLA row are not contiguous.
KVC_HOST_DEVICE bool has_block_scales(const StoredFormat& format) {
  return format.k.segments[0].scales.place == KVC_BACKEND_SCALES_ROW;
}

// Returns the byte of a row of 4-bit floats at which the scales of its blocks begin. dims: the number of dims of K or
// V. In MLA rows, V is a part of K's row, so the scales of V lie after the elements of K.
KVC_HOST_DEVICE int32_t block_scales_at(const kvc_backend_layer& layer, int32_t dims) {
  return (has_latent_rows(layer) ? layer.head_dim : dims) / 2;
}

// Returns where the scales of a layer lie: KVC_BACKEND_SCALES_*. If scales of blocks are multiplied by outer scales, it
// is the place of the outer scales.
KVC_HOST_DEVICE int32_t place_of_scales(const StoredFormat& format) {
  const kvc_backend_segment& segment = format.k.segments[0];
  return has_scales(segment.outer) ? segment.outer.place : segment.scales.place;
}

}  // namespace kvc::kernels

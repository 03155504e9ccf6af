// StoredFormat and PageLayout: the packed rows that current models and servers store, and the rows that this library
// stores. Sizes and offsets are worked out by hand from the layouts in vLLM's sources.
#include "kernels/common/stored_format.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layer/page_layout.h"

namespace kvc {
namespace {

using kernels::RowFormat;
using kernels::ScaleFormat;
using kernels::StoredFormat;

constexpr DLDataType kF32 = {kDLFloat, 32, 1}, kF16 = {kDLFloat, 16, 1}, kBf16 = {kDLBfloat, 16, 1};
constexpr DLDataType kE4m3 = {kDLFloat8_e4m3fn, 8, 1}, kE8m0 = {kDLFloat8_e8m0fnu, 8, 1};
constexpr DLDataType kE2m1 = {kDLFloat4_e2m1fn, 4, 1}, kU4 = {kDLUInt, 4, 1}, kU3 = {kDLUInt, 3, 1};

// Each row has its own scales, one for `dims` neighbours (0: one for the segment).
ScaleFormat scales_of(DLDataType dtype, uint16_t dims, int32_t place) {
  ScaleFormat scales = {};
  scales.dtype = dtype;
  scales.dims = dims;
  scales.tokens = scales.heads = 1;
  scales.place = static_cast<uint8_t>(place);
  return scales;
}

RowFormat row_of(DLDataType dtype, const ScaleFormat& scales = {}) {
  RowFormat row = {};
  row.num_segments = 1;
  row.segments[0].dtype = dtype;
  row.segments[0].scales = scales;
  return row;
}

RowFormat row_of(DLDataType first, uint16_t first_dims, const ScaleFormat& scales, DLDataType second) {
  RowFormat row = row_of(first, scales);
  row.num_segments = 2;
  row.segments[0].dims = first_dims;
  row.segments[1].dtype = second;
  return row;
}

StoredFormat alike(const RowFormat& row, int32_t order = KVC_BACKEND_PAGE_ROWS_FIRST) {
  StoredFormat format = {};
  format.k = format.v = row;
  format.page_order = static_cast<uint16_t>(order);
  return format;
}

// A layer as the page layout reads it, and the resulting places.
struct Pages {
  kvc_backend_layer layer = {};
  PageLayout layout;

  // v_dims 0: one row for each token, as MLA and index keys have it.
  Pages(const StoredFormat& format, int32_t heads, int32_t page_size, int32_t dims, int32_t v_dims) {
    layer.format = format;
    layer.num_pages = 3;
    layer.num_kv_heads = heads;
    layer.page_size = page_size;
    layer.head_dim = dims;
    layer.v_head_dim = v_dims == 0 ? dims : v_dims;
    layer.row_kind = v_dims == 0 ? KVC_BACKEND_ROW_LATENT : KVC_BACKEND_ROW_KV;
    layout = page_layout(layer);
  }
  const RowFormat& row(bool v) const { return v ? layer.format.v : layer.format.k; }
  int32_t dims(bool v) const { return v ? layer.v_head_dim : layer.head_dim; }

  // Position of an element in bits, from the begin of page 0.
  int64_t bit(int32_t token, int32_t head, int32_t dim, bool v = false) const {
    const RowsLayout& rows = (v ? layout.v : layout.k).rows;
    const int64_t begin = rows.offset_bytes + head * rows.head_stride_bytes + token * rows.slot_stride_bytes;
    return begin * 8 + kernels::bit_of_element(row(v), dims(v), dim);
  }
  // Position in bytes of an element that begins at a byte.
  int64_t element(int32_t token, int32_t head, int32_t dim, bool v = false) const {
    EXPECT_EQ(bit(token, head, dim, v) % 8, 0);
    return bit(token, head, dim, v) / 8;
  }
  const ScaleFormat& scales_of_dim(int32_t dim, bool v) const {
    return row(v).segments[kernels::segment_of_dim(row(v), dims(v), dim)].scales;
  }
  // Position in bytes of the scale of an element, from the begin of page 0.
  int64_t scale(int32_t token, int32_t head, int32_t dim, bool v = false) const {
    const PoolLayout& pool = v ? layout.v : layout.k;
    const ScaleFormat& scales = scales_of_dim(dim, v);
    const bool in_page = scales.place == KVC_BACKEND_SCALES_PAGE;
    const RowsLayout& rows = in_page ? pool.scales : pool.rows;
    const int64_t group = in_page && scales.tokens > 1 ? scales.tokens : 1;
    return rows.offset_bytes + head * rows.head_stride_bytes + token / group * rows.slot_stride_bytes +
           kernels::byte_of_scale(row(v), dims(v), dim);
  }
};

// Every element has its own bits, no scale overlaps an element, and a page contains all of its parts.
void expect_apart(const Pages& pages) {
  const kvc_backend_layer& layer = pages.layer;
  const bool apart = pages.layout.v.rows.offset_bytes >= pages.layout.page_bytes;  // V has a pool of its own
  ASSERT_FALSE(apart);
  std::vector<char> bits(static_cast<size_t>(pages.layout.page_bytes * 8), 0);
  const auto take = [&](int64_t first, int64_t count, char mark) {
    ASSERT_LE(first + count, pages.layout.page_bytes * 8);
    for (int64_t i = first; i < first + count; ++i) {
      ASSERT_TRUE(bits[static_cast<size_t>(i)] == 0 || (mark == 2 && bits[static_cast<size_t>(i)] == 2)) << i;
      bits[static_cast<size_t>(i)] = mark;
    }
  };
  for (int which = 0; which < (layer.row_kind == KVC_BACKEND_ROW_LATENT ? 1 : 2); ++which) {
    const bool v = which == 1;
    for (int32_t h = 0; h < layer.num_kv_heads; ++h) {
      for (int32_t t = 0; t < layer.page_size; ++t) {
        for (int32_t d = 0; d < pages.dims(v); ++d) {
          const int32_t segment = kernels::segment_of_dim(pages.row(v), pages.dims(v), d);
          take(pages.bit(t, h, d, v), pages.row(v).segments[segment].dtype.bits, 1);
          const ScaleFormat& scales = pages.scales_of_dim(d, v);
          if (!kernels::has_scales(scales) || scales.place == KVC_BACKEND_SCALES_APART) continue;
          take(pages.scale(t, h, d, v) * 8, kernels::scale_bytes(scales) * 8, 2);
        }
      }
    }
  }
}

// ---- One row a token --------------------------------------------------------------------------------

// DeepSeek V3.2: 512 e4m3, 4 float32 scales of 128 dims each, 64 bf16. All in the row.
TEST(StoredFormat, Row656) {
  const StoredFormat format = alike(row_of(kE4m3, 512, scales_of(kF32, 128, KVC_BACKEND_SCALES_SEGMENT), kBf16));
  EXPECT_TRUE(kernels::same_format(format, kernels::ds_mla_format()));
  EXPECT_TRUE(kernels::has_ds_mla_rows(format));
  EXPECT_FALSE(kernels::has_ds_mla_rows(kernels::stored_format(kE4m3)));
  EXPECT_EQ(kernels::row_bytes(format.v, 512), 528);  // of V: the latent part and its scales
  EXPECT_EQ(kernels::kDsMlaRotaryAt, 528);
  const Pages pages(format, 1, 64, 576, 0);
  EXPECT_EQ(pages.layout.token_bytes, 656);
  EXPECT_EQ(pages.layout.page_bytes, 41984);
  EXPECT_EQ(pages.element(0, 0, 511), 511);
  EXPECT_EQ(pages.element(0, 0, 512), 528);
  EXPECT_EQ(pages.element(2, 0, 575), 2 * 656 + 654);
  EXPECT_EQ(pages.scale(0, 0, 0), 512);
  EXPECT_EQ(pages.scale(3, 0, 300), 3 * 656 + 520);
  expect_apart(pages);
}

// The same with 4 bits: 512 e2m1, 64 e4m3, then 32 e4m3 scales of 16 dims. That of block s is byte 8(s&3)+(s>>2).
TEST(StoredFormat, Row352) {
  ScaleFormat scales = scales_of(kE4m3, 16, KVC_BACKEND_SCALES_ROW);
  scales.order = 4;
  const Pages pages(alike(row_of(kE2m1, 512, scales, kE4m3)), 1, 64, 576, 0);
  EXPECT_EQ(pages.layout.token_bytes, 352);
  EXPECT_EQ(pages.layout.page_bytes, 22528);
  EXPECT_EQ(pages.bit(0, 0, 7), 28);  // the high nibble of byte 3
  EXPECT_EQ(pages.element(1, 0, 512), 352 + 256);
  EXPECT_EQ(pages.scale(0, 0, 0), 320);
  EXPECT_EQ(pages.scale(0, 0, 16), 328);
  EXPECT_EQ(pages.scale(0, 0, 4 * 16), 321);
  EXPECT_EQ(pages.scale(5, 0, 31 * 16 + 15), 5 * 352 + 351);
  expect_apart(pages);
}

// DeepSeek V4: P x 576 (448 e4m3 + 64 bf16), then P x 8 (7 powers of two of 64 dims, and 0). Pages are whole 576 bytes.
TEST(StoredFormat, Row584) {
  RowFormat row = row_of(kE4m3, 448, scales_of(kE8m0, 64, KVC_BACKEND_SCALES_PAGE), kBf16);
  row.scales_multiple = 8;
  StoredFormat format = alike(row);
  format.page_multiple = 576;
  const Pages pages(format, 1, 64, 512, 0);
  EXPECT_EQ(pages.layout.token_bytes, 584);
  EXPECT_EQ(pages.layout.page_bytes, 37440);  // 64 x 584 = 37376, up to 65 x 576
  EXPECT_EQ(pages.element(1, 0, 447), 576 + 447);
  EXPECT_EQ(pages.element(63, 0, 449), 63 * 576 + 450);
  EXPECT_EQ(pages.scale(0, 0, 63), 36864);
  EXPECT_EQ(pages.scale(2, 0, 447), 36864 + 2 * 8 + 6);
  expect_apart(pages);
}

// DeepSeek V4.1: P x 512 e4m3, then P x 16 powers of two of 32 dims. Pages are whole 512 bytes.
TEST(StoredFormat, Row528) {
  StoredFormat format = alike(row_of(kE4m3, scales_of(kE8m0, 32, KVC_BACKEND_SCALES_PAGE)));
  format.page_multiple = 512;
  const Pages pages(format, 1, 3, 512, 0);
  EXPECT_EQ(pages.layout.token_bytes, 528);
  EXPECT_EQ(pages.layout.page_bytes, 2048);  // 3 x 528 = 1584
  EXPECT_EQ(pages.scale(2, 0, 511), 3 * 512 + 2 * 16 + 15);
  expect_apart(pages);
}

// DeepSeek V4.1's compressed rows: P x 256 bytes of e2m1, then P x 32 e4m3 scales of 16 dims.
TEST(StoredFormat, Row288) {
  const Pages pages(alike(row_of(kE2m1, scales_of(kE4m3, 16, KVC_BACKEND_SCALES_PAGE))), 1, 32, 512, 0);
  EXPECT_EQ(pages.layout.token_bytes, 288);
  EXPECT_EQ(pages.layout.page_bytes, 9216);
  EXPECT_EQ(pages.bit(1, 0, 1), 256 * 8 + 4);
  EXPECT_EQ(pages.scale(31, 0, 511), 32 * 256 + 31 * 32 + 31);
  expect_apart(pages);
}

// An index key: P x 128 e4m3, then P float32 scales.
TEST(StoredFormat, Row132) {
  const Pages pages(alike(row_of(kE4m3, scales_of(kF32, 0, KVC_BACKEND_SCALES_PAGE))), 1, 64, 128, 0);
  EXPECT_EQ(pages.layout.token_bytes, 132);
  EXPECT_EQ(pages.layout.page_bytes, 8448);
  EXPECT_EQ(pages.element(5, 0, 7), 5 * 128 + 7);
  EXPECT_EQ(pages.scale(5, 0, 7), 8192 + 20);
  expect_apart(pages);
}

// An MXFP4 index key: P x 64 bytes of e2m1, then P x 4 powers of two of 32 dims.
TEST(StoredFormat, Row68) {
  const Pages pages(alike(row_of(kE2m1, scales_of(kE8m0, 32, KVC_BACKEND_SCALES_PAGE))), 1, 64, 128, 0);
  EXPECT_EQ(pages.layout.token_bytes, 68);
  EXPECT_EQ(pages.layout.page_bytes, 4352);
  EXPECT_EQ(pages.bit(3, 0, 127), (3 * 64 + 63) * 8 + 4);
  EXPECT_EQ(pages.scale(3, 0, 127), 4096 + 3 * 4 + 3);
  expect_apart(pages);
}

// ---- K and V ----------------------------------------------------------------------------------------

// NVFP4: a page is K's rows, K's scales, V's rows, V's scales. Block scales are e4m3 of 16 dims, and each layer has a
// float32 scale of these.
TEST(StoredFormat, Nvfp4) {
  RowFormat row = row_of(kE2m1, scales_of(kE4m3, 16, KVC_BACKEND_SCALES_PAGE));
  row.segments[0].outer = scales_of(kF32, 0, KVC_BACKEND_SCALES_APART);
  row.segments[0].outer.tokens = row.segments[0].outer.heads = 0;
  const Pages pages(alike(row, KVC_BACKEND_PAGE_POOLS), 4, 16, 128, 128);
  EXPECT_EQ(pages.layout.token_bytes, 4 * 2 * (64 + 8));
  EXPECT_EQ(pages.layout.page_bytes, 9216);
  EXPECT_EQ(pages.element(3, 2, 6), (2 * 16 + 3) * 64 + 3);
  EXPECT_EQ(pages.scale(3, 2, 100), 4096 + (2 * 16 + 3) * 8 + 6);
  EXPECT_EQ(pages.element(0, 0, 0, true), 4608);
  EXPECT_EQ(pages.bit(15, 3, 127, true), (4608 + 63 * 64 + 63) * 8 + 4);
  EXPECT_EQ(pages.scale(15, 3, 127, true), 9215);
  expect_apart(pages);
}

// A token and head: K in 4 bits, its float32 scale (whose low bits hold the zero point), then V alike.
TEST(StoredFormat, Int4PerTokenHead) {
  StoredFormat format = alike(row_of(kU4, scales_of(kF32, 0, KVC_BACKEND_SCALES_SEGMENT)), KVC_BACKEND_PAGE_PAIRS);
  format.tokens_first = 1;
  const Pages pages(format, 8, 16, 128, 128);
  EXPECT_EQ(pages.layout.token_bytes, 8 * 136);
  EXPECT_EQ(pages.layout.page_bytes, 17408);
  EXPECT_EQ(pages.element(2, 5, 64), (2 * 8 + 5) * 136 + 32);
  EXPECT_EQ(pages.scale(2, 5, 64), (2 * 8 + 5) * 136 + 64);
  EXPECT_EQ(pages.element(2, 5, 0, true), (2 * 8 + 5) * 136 + 68);
  EXPECT_EQ(pages.scale(2, 5, 127, true), (2 * 8 + 5) * 136 + 132);
  expect_apart(pages);
}

// What the library stores: rows of K, rows of V, then the scales, in whole lines.
TEST(StoredFormat, Uint4) {
  const StoredFormat format = kernels::stored_format(kU4);
  EXPECT_TRUE(kernels::has_rotated_rows(format));
  EXPECT_FALSE(kernels::has_rotated_rows(kernels::stored_format({kDLInt, 8, 1})));
  const Pages pages(format, 2, 16, 80, 48);
  EXPECT_EQ(pages.layout.token_bytes, 2 * (40 + 24 + 8));
  EXPECT_EQ(pages.bit(5, 1, 7), ((16 + 5) * 40 + 3) * 8 + 4);
  EXPECT_EQ(kernels::row_bytes(format.v, 48), 24);
  const Pages both(format, 2, 16, 128, 128);
  EXPECT_EQ(both.layout.page_bytes, 2 * 2 * 16 * (64 + 4));
  EXPECT_EQ(both.element(3, 1, 64, true), 2 * 16 * 64 + (16 + 3) * 64 + 32);
  EXPECT_EQ(both.scale(3, 1, 100), 4 * 16 * 64 + (16 + 3) * 4);
  EXPECT_EQ(both.scale(3, 1, 0, true), 4 * 16 * 64 + 2 * 16 * 4 + (16 + 3) * 4);
  expect_apart(both);
}

// What the library stores: the scales of blocks follow the elements of their row.
TEST(StoredFormat, Float4) {
  const StoredFormat format = kernels::stored_format(kE2m1);
  EXPECT_TRUE(kernels::has_block_scales(format));
  EXPECT_FALSE(kernels::has_block_scales(kernels::stored_format(kU4)));
  EXPECT_EQ(kernels::place_of_scales(format), KVC_BACKEND_SCALES_APART);
  const Pages pages(format, 2, 16, 80, 48);
  EXPECT_EQ(pages.layout.token_bytes, 2 * (45 + 27));
  EXPECT_EQ(pages.bit(5, 1, 7), ((16 + 5) * 45 + 3) * 8 + 4);
  EXPECT_EQ(pages.scale(5, 1, 79), (16 + 5) * 45 + 44);
  const Pages both(format, 2, 16, 128, 128);
  EXPECT_EQ(both.layout.page_bytes, 2 * 2 * 16 * 72);
  EXPECT_EQ(both.element(3, 1, 64, true), 2 * 16 * 72 + (16 + 3) * 72 + 32);
  EXPECT_EQ(both.scale(3, 1, 100), (16 + 3) * 72 + 64 + 6);
  expect_apart(both);
}

// The same with 8 bits.
TEST(StoredFormat, Fp8PerTokenHead) {
  StoredFormat format = alike(row_of(kE4m3, scales_of(kF32, 0, KVC_BACKEND_SCALES_SEGMENT)), KVC_BACKEND_PAGE_PAIRS);
  const Pages pages(format, 2, 16, 128, 128);
  EXPECT_EQ(pages.layout.token_bytes, 2 * 264);
  EXPECT_EQ(pages.element(1, 1, 0), (16 + 1) * 264);
  EXPECT_EQ(pages.scale(1, 1, 0, true), (16 + 1) * 264 + 260);
  expect_apart(pages);
}

// A head: K in e2m1 with powers of two of 32 dims, V likewise.
TEST(StoredFormat, Ultraquant) {
  const RowFormat row = row_of(kE2m1, scales_of(kE8m0, 32, KVC_BACKEND_SCALES_SEGMENT));
  EXPECT_EQ(Pages(alike(row, KVC_BACKEND_PAGE_PAIRS), 1, 16, 128, 128).layout.token_bytes, 136);
  const Pages pages(alike(row, KVC_BACKEND_PAGE_PAIRS), 1, 16, 256, 256);
  EXPECT_EQ(pages.layout.token_bytes, 272);
  EXPECT_EQ(pages.scale(1, 0, 255), 272 + 128 + 7);
  expect_apart(pages);
}

// A head: K by a code book of 3 bits with a float16 norm, V in 4 bits with a float16 scale and minimum. Rows are padded
// to even bytes.
TEST(StoredFormat, Turboquant) {
  StoredFormat format = alike(row_of(kU3, scales_of(kF16, 0, KVC_BACKEND_SCALES_SEGMENT)), KVC_BACKEND_PAGE_PAIRS);
  format.k.segments[0].encoding = 1;
  format.k.row_multiple = 2;
  format.v = row_of(kU4, scales_of(kF16, 0, KVC_BACKEND_SCALES_SEGMENT));
  format.v.segments[0].scales.values = 2;
  const Pages pages(format, 2, 8, 128, 128);
  EXPECT_EQ(pages.layout.token_bytes, 2 * (48 + 2 + 64 + 4));
  EXPECT_EQ(pages.bit(0, 0, 11), 33);  // 8 indexes in 3 bytes
  EXPECT_EQ(pages.scale(0, 1, 0), 8 * 118 + 48);
  EXPECT_EQ(pages.scale(0, 1, 0, true), 8 * 118 + 50 + 64);
  expect_apart(pages);
  EXPECT_EQ(kernels::row_bytes(format.k, 40), 18);  // 15 + 2, padded
}

// K has a scale and a minimum for each dim and 32 tokens, V for each token and 32 dims.
TEST(StoredFormat, ScalesOfSeveralTokens) {
  StoredFormat format = alike(row_of({kDLUInt, 2, 1}, scales_of(kF16, 1, KVC_BACKEND_SCALES_PAGE)));
  format.k.segments[0].scales.tokens = 32;
  format.k.segments[0].scales.values = format.v.segments[0].scales.values = 2;
  format.v.segments[0].scales.dims = 32;
  format.page_order = KVC_BACKEND_PAGE_POOLS;
  const Pages pages(format, 1, 64, 128, 128);
  EXPECT_EQ(pages.layout.page_bytes, 64 * 32 + 2 * 512 + 64 * 32 + 64 * 16);
  EXPECT_EQ(pages.scale(31, 0, 3), 2048 + 12);
  EXPECT_EQ(pages.scale(32, 0, 3), 2048 + 512 + 12);
  EXPECT_EQ(pages.scale(2, 0, 127, true), 3072 + 2048 + 2 * 16 + 12);
  expect_apart(pages);
}

// ---- The formats of this library --------------------------------------------------------------------

TEST(StoredFormat, ArraysOfElements) {
  const Pages half(kernels::stored_format(kF16), 2, 16, 24, 24);
  EXPECT_EQ(half.layout.token_bytes, 2 * 2 * 48);
  EXPECT_EQ(half.layout.page_bytes, 16 * 2 * 2 * 48);
  EXPECT_TRUE(half.layout.together);
  EXPECT_EQ(half.element(3, 1, 5), (16 + 3) * 48 + 10);
  EXPECT_EQ(half.element(3, 1, 5, true), 1536 + (16 + 3) * 48 + 10);
  expect_apart(half);
  const Pages unlike(kernels::stored_format(kBf16), 2, 16, 24, 8);  // V's pool follows K's, of 3 pages
  EXPECT_FALSE(unlike.layout.together);
  EXPECT_EQ(unlike.layout.k.rows.page_stride_bytes, 1536);
  EXPECT_EQ(unlike.layout.v.rows.page_stride_bytes, 512);
  EXPECT_EQ(unlike.layout.page_bytes, 2048);
  EXPECT_EQ(unlike.element(0, 0, 0, true), 3 * 1536);
  const Pages float8(kernels::stored_format(kE4m3), 2, 16, 24, 24);
  EXPECT_EQ(float8.layout.token_bytes, 2 * 2 * 24);
  EXPECT_EQ(float8.layout.k.scales.row_bytes, 0);  // they lie apart
  for (const DLDataType dtype : {kF32, kF16, kE4m3, DLDataType{kDLInt, 8, 1}}) {
    EXPECT_TRUE(kernels::is_array(kernels::stored_format(dtype).k));
  }
  EXPECT_FALSE(kernels::is_array(row_of(kE2m1)));
  EXPECT_FALSE(kernels::is_array(row_of(kE4m3, 512, {}, kBf16)));
  EXPECT_FALSE(kernels::is_array(row_of(kE4m3, scales_of(kF32, 0, KVC_BACKEND_SCALES_ROW))));
}

// After the rows of a page come K's scales and V's, and pages are whole lines of 64 bytes.
TEST(StoredFormat, Int8) {
  const StoredFormat format = kernels::stored_format({kDLInt, 8, 1});
  const Pages pages(format, 3, 5, 7, 7);  // 210 bytes of rows
  EXPECT_EQ(pages.layout.token_bytes, 2 * 3 * (7 + 4));
  EXPECT_EQ(pages.layout.page_bytes, 384);  // 212 + 120
  EXPECT_EQ(pages.scale(0, 0, 0), 212);
  EXPECT_EQ(pages.scale(4, 2, 6), 212 + (2 * 5 + 4) * 4);
  EXPECT_EQ(pages.scale(0, 0, 0, true), 272);
  expect_apart(pages);
  const Pages unlike(format, 1, 4, 16, 8);
  EXPECT_EQ(unlike.layout.k.rows.page_stride_bytes, 128);  // 64 + 16
  EXPECT_EQ(unlike.layout.v.scales.offset_bytes, 3 * 128 + 32);
  const Pages latent(format, 1, 4, 20, 0);
  EXPECT_EQ(latent.layout.page_bytes, 128);  // 80 + 16
  EXPECT_EQ(latent.layout.token_bytes, 24);
}

}  // namespace
}  // namespace kvc

#include "layer/page_layout.h"

#include <cstring>

#include "kernels/common/stored_format.h"

namespace kvc {
namespace {

using kernels::RowFormat;
using kernels::ScaleFormat;

// The rows of one page, or their scales: an array [heads, tokens], or [tokens, heads].
struct Block {
  int64_t heads, tokens, row_bytes;

  int64_t bytes() const { return heads * tokens * row_bytes; }
  // stride_bytes: the distance from one row to the next.
  RowsLayout at(int64_t offset_bytes, bool tokens_first, int64_t stride_bytes) const {
    RowsLayout layout;
    layout.offset_bytes = offset_bytes;
    layout.head_stride_bytes = tokens_first ? stride_bytes : tokens * stride_bytes;
    layout.slot_stride_bytes = tokens_first ? heads * stride_bytes : stride_bytes;
    layout.row_bytes = row_bytes;
    return layout;
  }
};

// The rows and scales of K, or of V, in a page.
struct Parts {
  Block rows, scales;
  int64_t scale_alignment = 1;

  Parts(const RowFormat& format, const kvc_backend_layer& layer, int32_t dims)
      : rows{layer.num_kv_heads, layer.page_size, kernels::row_bytes(format, dims)}, scales{} {
    const int64_t bytes = kernels::page_scale_bytes(format, dims);
    if (bytes == 0) return;
    const ScaleFormat* of_page = &format.segments[0].scales;
    if (of_page->place != KVC_BACKEND_SCALES_PAGE) of_page = &format.segments[1].scales;
    scales = {kernels::num_scales(layer.num_kv_heads, of_page->heads),
              kernels::num_scales(layer.page_size, of_page->tokens), bytes};
    scale_alignment = of_page->dtype.bits / 8;
  }
  int64_t bytes() const { return rows.bytes() + scales.bytes(); }
};

// Places blocks one after another in a page.
class PageWriter {
 public:
  PageWriter(int64_t first_offset, bool tokens_first)
      : begin_(first_offset), end_(first_offset), tokens_first_(tokens_first) {}

  void add_rows(const Parts& parts, PoolLayout* pool) {
    pool->rows = parts.rows.at(end_, tokens_first_, parts.rows.row_bytes);
    end_ += parts.rows.bytes();
  }
  void add_scales(const Parts& parts, PoolLayout* pool) {
    if (parts.scales.row_bytes == 0) return;
    end_ = begin_ + kernels::round_up_bytes(end_ - begin_, parts.scale_alignment);
    pool->scales = parts.scales.at(end_, tokens_first_, parts.scales.row_bytes);
    end_ += parts.scales.bytes();
  }
  // Adds the rows of K and V in pairs: after each row of K comes its row of V.
  void add_pairs(const Parts& k, const Parts& v, PageLayout* layout) {
    const int64_t pair_bytes = k.rows.row_bytes + v.rows.row_bytes;
    layout->k.rows = k.rows.at(end_, tokens_first_, pair_bytes);
    layout->v.rows = v.rows.at(end_ + k.rows.row_bytes, tokens_first_, pair_bytes);
    end_ += k.rows.bytes() + v.rows.bytes();
  }
  int64_t page_bytes(int64_t multiple) const { return kernels::round_up_bytes(end_ - begin_, multiple); }

 private:
  const int64_t begin_;
  int64_t end_;
  const bool tokens_first_;
};

void set_page_stride(int64_t page_bytes, PoolLayout* pool) {
  pool->rows.page_stride_bytes = page_bytes;
  if (pool->scales.row_bytes > 0) pool->scales.page_stride_bytes = page_bytes;
}

// Lays out a pool that has only pages of K, or only pages of V. Returns the bytes of a page.
int64_t lay_out_alone(const Parts& parts, const kvc_backend_format& format, int64_t offset_bytes, PoolLayout* pool) {
  PageWriter writer(offset_bytes, format.tokens_first != 0);
  writer.add_rows(parts, pool);
  writer.add_scales(parts, pool);
  const int64_t page_bytes = writer.page_bytes(format.page_multiple);
  set_page_stride(page_bytes, pool);
  return page_bytes;
}

void lay_out_together(const Parts& k, const Parts& v, const kvc_backend_format& format, PageLayout* layout) {
  PageWriter writer(0, format.tokens_first != 0);
  switch (format.page_order) {
    case KVC_BACKEND_PAGE_PAIRS:
      writer.add_pairs(k, v, layout);
      break;
    case KVC_BACKEND_PAGE_POOLS:
      writer.add_rows(k, &layout->k);
      writer.add_scales(k, &layout->k);
      writer.add_rows(v, &layout->v);
      writer.add_scales(v, &layout->v);
      break;
    default:
      writer.add_rows(k, &layout->k);
      writer.add_rows(v, &layout->v);
      writer.add_scales(k, &layout->k);
      writer.add_scales(v, &layout->v);
      break;
  }
  layout->page_bytes = writer.page_bytes(format.page_multiple);
  set_page_stride(layout->page_bytes, &layout->k);
  set_page_stride(layout->page_bytes, &layout->v);
}

}  // namespace

PageLayout page_layout(const kvc_backend_layer& layer) noexcept {
  const kvc_backend_format& format = layer.format;
  PageLayout layout;
  const Parts k(format.k, layer, layer.head_dim), v(format.v, layer, layer.v_head_dim);
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT) {
    layout.page_bytes = lay_out_alone(k, format, 0, &layout.k);
    layout.v = layout.k;
    layout.token_bytes = k.bytes() / layer.page_size;
    return layout;
  }
  layout.token_bytes = (k.bytes() + v.bytes()) / layer.page_size;
  layout.together = layer.head_dim == layer.v_head_dim && std::memcmp(&format.k, &format.v, sizeof format.k) == 0;
  if (layout.together || format.page_order != KVC_BACKEND_PAGE_ROWS_FIRST) {
    lay_out_together(k, v, format, &layout);
    return layout;
  }
  const int64_t k_page_bytes = lay_out_alone(k, format, 0, &layout.k);
  layout.page_bytes = k_page_bytes + lay_out_alone(v, format, k_page_bytes * layer.num_pages, &layout.v);
  return layout;
}

}  // namespace kvc

// PageLayout: where K, V and scales lie in the pages that the library allocates. It follows from the stored format and
// the shape of the layer. A pure function.
//
// With KVC_BACKEND_PAGE_ROWS_FIRST, a page has the rows of K, the rows of V, the scales of K, and the scales of V, in
// this order. If the rows of K and V differ in format or dims, K and V have separate pools: all pages of K come first,
// and each page has rows and then scales. A page of an MLA layer has one row a token, for K and V together.
// kvcache_backend.h describes the other orders.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc {

// Where the rows of K or V, or their scales, lie.
struct RowsLayout {
  int64_t offset_bytes = 0;  // of the first row, from the start of the memory
  int64_t page_stride_bytes = 0;
  int64_t head_stride_bytes = 0;
  int64_t slot_stride_bytes = 0;
  int64_t row_bytes = 0;
};

// scales: of the scales that lie in the pages. All fields are 0 without such scales.
struct PoolLayout {
  RowsLayout rows, scales;
};

struct PageLayout {
  PoolLayout k, v;
  bool together = false;    // rows of K and V have the same format and dims
  int64_t token_bytes = 0;  // of one token's rows and scales, without padding of the page
  int64_t page_bytes = 0;   // K and V of one page
};

// Uses the layer's format and shape, and num_pages for the offset of V's pool.
PageLayout page_layout(const kvc_backend_layer& layer) noexcept;

}  // namespace kvc

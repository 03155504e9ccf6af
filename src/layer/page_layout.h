// PageLayout: where K, V and scales lie in the pages that the library allocates. It follows from the stored format and
// the shape of the layer. A pure function.
//
// In the order KVC_BACKEND_PAGE_ROWS_FIRST a page holds K's rows, V's rows, K's scales and V's scales. If K and V have
// unlike rows, each has a pool of its own: K's pages come first, and each page holds rows and then scales. A page of an
// MLA layer has one row for K and V. kvcache_backend.h describes the other orders.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc {

// Where the rows of K or V lie, or their scales. All are bytes.
struct RowsLayout {
  int64_t offset_bytes = 0;  // of the first one, from the begin of the memory
  int64_t page_stride_bytes = 0;
  int64_t head_stride_bytes = 0;
  int64_t slot_stride_bytes = 0;
  int64_t row_bytes = 0;
};

// scales: of the scales that lie in the pages, after the rows. Without such scales it is all 0.
struct PoolLayout {
  RowsLayout rows, scales;
};

struct PageLayout {
  PoolLayout k, v;
  bool together = false;    // K and V of a page have like rows, at a constant distance
  int64_t token_bytes = 0;  // of one token: rows and scales, without padding of the page
  int64_t page_bytes = 0;   // K and V of one page
};

// Uses the layer's format and shape, and num_pages for the offset of V's pool.
PageLayout page_layout(const kvc_backend_layer& layer) noexcept;

}  // namespace kvc

// PageLayout: where K, V and scales lie in the pages that the library allocates. A pure function of a layer's shape.
//
// A page holds K's rows [Hkv, page_size, D] and then V's; where D and Dv differ, K and V have pools of their own, K's
// first. An MLA page holds rows [1, page_size, D] alone: V is a part of them. int8: after the rows come the scales of
// the page's tokens, [2, Hkv, page_size] float32 (K's, then V's; apart: [Hkv, page_size]), and then nothing up to a
// multiple of 64 bytes, so that rows lie as they do without scales.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc {

// Of one pool. Offsets are bytes from the pool's first page.
struct PoolLayout {
  int64_t offset_bytes = 0;
  int64_t scales_offset_bytes = 0;  // if tokens have scales
  int64_t page_bytes = 0;           // from page to page
};

struct PageLayout {
  PoolLayout k, v;  // together: of equal page_bytes, V after K in each page
  bool together = false;
  bool token_scales = false;
  int64_t token_bytes = 0;  // of one token: rows and scales
  int64_t page_bytes = 0;   // K and V of one page
};

// Uses the layer's shape, dtype and num_pages (for the offset of V's pool).
PageLayout page_layout(const kvc_backend_layer& layer) noexcept;

}  // namespace kvc

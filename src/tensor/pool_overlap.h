// PoolRows: the bytes of a page pool, as rows by strides; and whether two pools share one. A pure function of numbers.
//
// Pools of one allocation may lie within each other's ranges (all layers of a page side by side, K and V of a token):
// what counts is whether a row of one meets a row of the other.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc {

class PoolRows {
 public:
  // The pool's rows, at [pages, heads, page_size] of the layer by its strides.
  PoolRows(const kvc_backend_layer& layer, const kvc_backend_pool& pool);

  uintptr_t begin() const noexcept { return begin_; }
  uintptr_t end() const noexcept { return begin_ + static_cast<uintptr_t>(extent(0)); }

  // Whether a byte belongs to both. Exact where the strides of one nest in those of the other, as they do in pools of
  // one layout; else true if the ranges meet.
  bool overlaps(const PoolRows& other) const noexcept;

 private:
  // From the largest stride down; dims of one row, and those that follow each other without a gap, are none.
  struct Dim {
    int64_t count;
    int64_t stride_bytes;
  };
  int64_t extent(int32_t first_dim) const noexcept;
  bool meets(int32_t dim, const PoolRows& other, int32_t other_dim, int64_t distance) const noexcept;

  uintptr_t begin_;
  Dim dims_[3];
  int32_t num_dims_ = 0;
  int64_t row_bytes_;
};

}  // namespace kvc

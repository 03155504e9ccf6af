// PoolRows: the bytes that the rows of a page pool take, and whether two pools share a byte. Pure.
//
// The address ranges of two pools of one allocation may overlap without an error. For example, all layers of a page
// may lie side by side, or K and V of a token. So the test compares rows, not ranges.
#pragma once

#include <cstdint>

#include "kvcache_backend.h"

namespace kvc {

class PoolRows {
 public:
  // The rows [num_pages, num_kv_heads, page_size] of the layer, with the strides of the pool.
  PoolRows(const kvc_backend_layer& layer, const kvc_backend_pool& pool);

  uintptr_t begin() const noexcept { return begin_; }
  uintptr_t end() const noexcept { return begin_ + static_cast<uintptr_t>(extent(0)); }

  // Whether a byte belongs to both pools. The result is exact if no entry of a dim reaches into the next one, as in
  // pools of one layout. In other cases, it may be true when only the ranges overlap.
  bool overlaps(const PoolRows& other) const noexcept;

 private:
  // Dims in the order of falling strides. Dims of size 1 are left out. Dims whose rows follow each other without a
  // gap are part of row_bytes_.
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

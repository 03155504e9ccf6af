// PoolRows describes the bytes that the rows of a page pool take, and tests whether two pools share a byte. Its
// functions are pure.
//
// The address ranges of two pools of one allocation may overlap without an error. For example, a page may have the rows
// of all layers side by side, or K and V of a token may lie side by side. So the test compares rows, not ranges.
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

  // Returns whether a byte belongs to both pools. The result is exact if no entry of a dim reaches into the next entry,
  // as in pools of one layout. In other cases, the result may be true although only the address ranges overlap.
  bool overlaps(const PoolRows& other) const noexcept;

 private:
  // A dim of the pool. dims_ has the dims sorted by stride, with the largest stride first. Dims of size 1 are left out.
  // Dims whose rows follow each other without a gap are part of row_bytes_.
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

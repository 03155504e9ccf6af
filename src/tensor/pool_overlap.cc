#include "tensor/pool_overlap.h"

#include <algorithm>

namespace kvc {

PoolRows::PoolRows(const kvc_backend_layer& layer, const kvc_backend_pool& pool)
    : begin_(reinterpret_cast<uintptr_t>(pool.data)), row_bytes_(pool.row_bytes) {
  const Dim all[3] = {{layer.num_pages, pool.page_stride_bytes},
                      {layer.num_kv_heads, pool.head_stride_bytes},
                      {layer.page_size, pool.slot_stride_bytes}};
  for (const Dim& dim : all) {
    if (dim.count > 1) dims_[num_dims_++] = dim;
  }
  std::sort(dims_, dims_ + num_dims_, [](const Dim& a, const Dim& b) { return a.stride_bytes > b.stride_bytes; });
  while (num_dims_ > 0 && dims_[num_dims_ - 1].stride_bytes == row_bytes_) row_bytes_ *= dims_[--num_dims_].count;
}

// Returns the bytes from the begin of the first row to the end of the last row, over the dims from `first_dim` on.
int64_t PoolRows::extent(int32_t first_dim) const noexcept {
  int64_t bytes = row_bytes_;
  for (int32_t d = first_dim; d < num_dims_; ++d) bytes += (dims_[d].count - 1) * dims_[d].stride_bytes;
  return bytes;
}

bool PoolRows::overlaps(const PoolRows& other) const noexcept {
  return meets(0, other, 0, static_cast<int64_t>(other.begin_ - begin_));
}

// Returns whether an entry of this pool overlaps an entry of the other pool. An entry consists of all rows with the
// same indices in the dims before `dim` (in the other pool, before `other_dim`). `distance` is the number of bytes from
// the first row of this pool's entry to the first row of the other entry.
bool PoolRows::meets(int32_t dim, const PoolRows& other, int32_t other_dim, int64_t distance) const noexcept {
  if (distance >= extent(dim) || distance + other.extent(other_dim) <= 0) return false;
  if (dim == num_dims_ && other_dim == other.num_dims_) return true;
  const auto stride_at = [](const PoolRows& rows, int32_t d) {
    return d < rows.num_dims_ ? rows.dims_[d].stride_bytes : 0;
  };
  const int64_t stride = std::max(stride_at(*this, dim), stride_at(other, other_dim));
  // Each pool is treated as entries that are `stride` bytes apart. A pool without a dim of that stride is one entry. If
  // an entry reaches into the next entry, the search ends here, and the result is true.
  const bool steps = stride_at(*this, dim) == stride, other_steps = stride_at(other, other_dim) == stride;
  const int64_t count = steps ? dims_[dim].count : 1;
  const int64_t other_count = other_steps ? other.dims_[other_dim].count : 1;
  const int32_t below = dim + steps, other_below = other_dim + other_steps;
  if (extent(below) > stride || other.extent(other_below) > stride) return true;
  // Entry j of the other pool begins distance + (j - i) * stride bytes after entry i of this pool. Entries can
  // overlap for only two values of j - i.
  const int64_t first = distance > 0 ? -((distance + stride - 1) / stride) : -distance / stride;
  for (int64_t steps_apart = first; steps_apart <= first + 1; ++steps_apart) {
    if (steps_apart <= -count || steps_apart >= other_count) continue;
    if (meets(below, other, other_below, distance + steps_apart * stride)) return true;
  }
  return false;
}

}  // namespace kvc

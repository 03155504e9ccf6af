// Pools and scales of a layer for kernel tests. The elements of their arrays have whole bytes. Two of 4 bits are one.
#pragma once

#include "kernels/common/stored_format.h"

namespace kvc::kernels::test {

// A pool of rows of `dims` elements. Strides are in elements of `dtype`.
inline kvc_backend_pool pool_of(DLDataType dtype, void* data, int64_t page_stride, int64_t head_stride,
                                int64_t slot_stride, int64_t dims) {
  const int64_t bytes = (dtype.bits + 7) / 8;
  return {data, page_stride * bytes, head_stride * bytes, slot_stride * bytes, dims * bytes};
}

// A float32 scale for each token and head, in pages. Strides are in floats.
inline kvc_backend_scales scales_of_tokens(float* data, int64_t page_stride, int64_t head_stride, int64_t slot_stride) {
  constexpr int64_t kBytes = sizeof(float);
  return {data, page_stride * kBytes, head_stride * kBytes, slot_stride * kBytes, kBytes};
}

// A float32 scale for each head; head_stride 0: one for all.
inline kvc_backend_scales scales_of_heads(float* data, int64_t head_stride) {
  return {data, 0, head_stride * static_cast<int64_t>(sizeof(float)), 0, 0};
}

// The first byte of a row.
inline unsigned char* address_of_row(const kvc_backend_pool& pool, int64_t page, int64_t head, int64_t slot) {
  return static_cast<unsigned char*>(pool.data) + page * pool.page_stride_bytes + head * pool.head_stride_bytes +
         slot * pool.slot_stride_bytes;
}

}  // namespace kvc::kernels::test

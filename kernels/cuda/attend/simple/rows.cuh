// Elements of stored rows, as the simple kernel reads them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/block_row.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"

namespace kvc::kernels::cuda {

// A template argument that means block rows (block_row.h).
struct Blocks {};

template <class T>
constexpr bool kIsBlocks = std::is_same_v<T, Blocks>;

// Whether rows of elements T are stored rotated.
template <class T>
constexpr bool kIsSpread = std::is_same_v<T, U4>;

// Returns element d of the row at byte `bytes` of a pool, without the scale of its row or head. dims: the number of
// dims of K or V. zero: the row's zero point. The row must not be a block row.
template <class T>
__device__ __forceinline__ float row_element(const kvc_backend_layer& layer, const kvc_backend_pool& pool,
                                             int64_t bytes, int32_t dims, float zero, int32_t d) {
  const unsigned char* const row = static_cast<const unsigned char*>(pool.data) + bytes;
  const auto half_of_byte = [&] { return static_cast<uint8_t>(row[d / 2] >> d % 2 * 4 & 15); };
  if constexpr (std::is_same_v<T, U4>) {
    return to_float(U4{half_of_byte()}) - zero;
  } else if constexpr (std::is_same_v<T, E2m1>) {
    return to_float(E2m1{half_of_byte()}) * block_scale(row[block_scales_at(layer, dims) + d / kernels::kBlockDims]);
  } else {
    return to_float(reinterpret_cast<const T*>(row)[d]);
  }
}

// Returns element d of the block row at byte `bytes` of a pool. page_scales: as in scales_of_row.
__device__ __forceinline__ float block_element(const BlockRow& shape, const kvc_backend_pool& pool, int64_t bytes,
                                               const float* page_scales, int32_t d) {
  const unsigned char* const row = static_cast<const unsigned char*>(pool.data) + bytes;
  return load_of_block_row(shape, row, scales_of_row(shape, row, page_scales), d);
}

}  // namespace kvc::kernels::cuda

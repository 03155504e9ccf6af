// Elements of stored rows, as the simple kernel reads them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/ds_mla_row.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"

namespace kvc::kernels::cuda {

// The type of the rows of fp8_ds_mla (ds_mla_row.h), whose dims have two types.
struct DsMla {};

// Whether rows of elements T are stored rotated.
template <class T>
constexpr bool kIsSpread = std::is_same_v<T, U4>;

// Element d of the row at a byte offset in a pool, without the scale of its row or head. dims: of K or of V. zero: the
// row's zero point.
template <class T>
__device__ __forceinline__ float row_element(const kvc_backend_layer& layer, const kvc_backend_pool& pool,
                                             int64_t bytes, int32_t dims, float zero, int32_t d) {
  const unsigned char* const row = static_cast<const unsigned char*>(pool.data) + bytes;
  const auto half_of_byte = [&] { return static_cast<uint8_t>(row[d / 2] >> d % 2 * 4 & 15); };
  if constexpr (std::is_same_v<T, U4>) {
    return widen(U4{half_of_byte()}) - zero;
  } else if constexpr (std::is_same_v<T, E2m1>) {
    return widen(E2m1{half_of_byte()}) * block_scale(row[block_scales_at(layer, dims) + d / kernels::kBlockDims]);
  } else if constexpr (std::is_same_v<T, DsMla>) {
    return load_ds_mla(row, d);
  } else {
    return widen(reinterpret_cast<const T*>(row)[d]);
  }
}

}  // namespace kvc::kernels::cuda

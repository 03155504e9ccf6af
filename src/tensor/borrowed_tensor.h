// Makes a DLTensor over an array of integers that the library keeps in host memory. `shape` must outlive the tensor.
#pragma once

#include <cstdint>

#include "kvcache.h"

namespace kvc {

template <class T>
DLTensor borrowed_tensor(T* data, int64_t* shape) noexcept {
  static constexpr int64_t kStride = 1;
  const uint8_t bits = sizeof(T) * 8;
  return {data, {kDLCPU, 0}, 1, {kDLInt, bits, 1}, shape, const_cast<int64_t*>(&kStride), 0};
}

}  // namespace kvc

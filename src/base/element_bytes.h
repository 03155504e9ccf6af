// Bytes of an element of a tensor that a caller gives or receives. Packed elements of 4 bits come as bytes, and the
// tensor's sizes and strides are in bytes. Sizes of stored rows do not follow from this function but from
// kernels/common/stored_format.h.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "kvcache.h"

namespace kvc {

inline int32_t element_bytes(DLDataType dtype) noexcept {
  KVC_ASSERT((dtype.bits % 8 == 0 || dtype.bits == 4) && dtype.lanes == 1, dtype.bits, dtype.lanes);
  return (dtype.bits + 7) / 8;
}

}  // namespace kvc

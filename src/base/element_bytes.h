// Returns the number of bytes of one element of a tensor that a caller gives or receives. A tensor of packed 4-bit
// elements has its sizes and strides in bytes, so one of its elements counts as 1 byte. Do not compute sizes of stored
// rows with this function: use kernels/common/stored_format.h.
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

// Bytes of an element of a tensor that a caller gives or receives. Such elements have whole bytes. Sizes of stored rows
// do not follow from this function but from kernels/common/stored_format.h.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "kvcache.h"

namespace kvc {

inline int32_t element_bytes(DLDataType dtype) noexcept {
  KVC_ASSERT(dtype.bits % 8 == 0 && dtype.lanes == 1, dtype.bits, dtype.lanes);
  return dtype.bits / 8;
}

}  // namespace kvc

// What a device found in a caller's index arrays, in words.
#pragma once

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// EARLIER_CALL, with the call, array, row and value.
Status status_of_fault(const kvc_backend_fault& fault) noexcept;

}  // namespace kvc

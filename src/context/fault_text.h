// Describes a bad value that a device found in a caller's index arrays.
#pragma once

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// Returns an EARLIER_CALL error that names the call, the array, the row and the value.
Status status_of_fault(const kvc_backend_fault& fault) noexcept;

}  // namespace kvc

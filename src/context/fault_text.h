// Describes a bad value that a device found in a caller's index arrays.
#pragma once

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// An EARLIER_CALL that names the call, array, row and value.
Status status_of_fault(const kvc_backend_fault& fault) noexcept;

}  // namespace kvc

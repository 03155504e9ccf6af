// Finds the backend of a device type.
// Thread safety: any thread. Ownership: tables are static, nothing is released.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// device_type: a DLDeviceType. DEVICE_UNAVAILABLE if no backend serves it; then *backend is left alone.
Status load_backend(int32_t device_type, const kvc_backend** backend) noexcept;

}  // namespace kvc

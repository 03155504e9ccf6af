// Finds the backend of a device type. The CPU's is linked in. Others are plug-ins: files with the symbol
// kvc_backend_get. Thread safety: any thread. Ownership: tables are static, and plug-ins stay loaded, so nothing is
// released.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// device_type: a DLDeviceType. path: nullable, the file of a plug-in. Without it, CUDA's plug-in is the file that
// $KVCACHE_CUDA_BACKEND names, else libkvcache_cuda.so in the folder of this library (library_folder.h). A process that
// runs with more rights than its caller (set-uid, set-gid, capabilities of the file) ignores the variable. Returns
// DEVICE_UNAVAILABLE if no backend serves the type. The message names the file and the reason, and *backend does not
// change.
Status load_backend(int32_t device_type, const char* path, const kvc_backend** backend) noexcept;

}  // namespace kvc

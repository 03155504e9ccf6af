// Finds the backend for a device type. The CPU backend is linked in. Other backends are plug-ins: files with the
// symbol kvc_backend_get. Thread safety: any thread. Ownership: the caller releases nothing, because each
// kvc_backend is static and plug-ins stay loaded.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// device_type: a DLDeviceType. path: the file of a plug-in; nullable. If it is null, the CUDA plug-in is the file that
// $KVCACHE_CUDA_BACKEND names, or else libkvcache_cuda.so in the folder of this library (library_folder.h). A process
// that runs with more rights than its caller (set-uid, set-gid, capabilities of the file) ignores this variable.
// Returns DEVICE_UNAVAILABLE if there is no usable backend for the device type. The message then gives the reason, and
// *backend does not change. Returns OUT_OF_MEMORY if there is no memory for a path.
Status load_backend(int32_t device_type, const char* path, const kvc_backend** backend) noexcept;

}  // namespace kvc

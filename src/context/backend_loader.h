// Finds the backend of a device type: the CPU's is linked in, others are plug-ins, files with the symbol
// kvc_backend_get. Thread safety: any thread. Ownership: tables are static, and plug-ins stay loaded; nothing is
// released.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// device_type: a DLDeviceType. path: nullable, the file of a plug-in; else that of $KVCACHE_CUDA_BACKEND for CUDA, else
// libkvcache_cuda.so beside the file that this function is in.
// DEVICE_UNAVAILABLE if no backend serves the type, with what was looked for and why it does not; then *backend is left
// alone.
Status load_backend(int32_t device_type, const char* path, const kvc_backend** backend) noexcept;

}  // namespace kvc

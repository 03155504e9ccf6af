// The numeric tests of tests/kernels on a plug-in: KVC_KERNEL_BACKEND is the path of its file. Tests keep pools,
// tensors and partials in std::vector. So operator new takes pinned memory from CUDA, where host and device read the
// same addresses, and each call of the table waits for the device. A plug-in for host memory needs neither.
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels::test {

// The plug-in's table, whose calls wait for the device. Ends the program with a message if that fails.
const kvc_backend* real_backend(const char* path);

// The emulated backend's table. As with a plug-in, a call with memory that a GPU cannot reach (device_memory.h) ends
// the program.
const kvc_backend* checked_backend(const kvc_backend* emulated);

}  // namespace kvc::kernels::test

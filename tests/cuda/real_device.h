// The numeric tests of tests/kernels on a GPU: KVC_KERNEL_BACKEND names a plug-in's file. Tests keep pools, tensors and
// partials in std::vector, so while a plug-in is named, operator new takes from pinned memory of CUDA, where
// host and device read the same addresses; and every call of the table waits for the device, as a CPU's does.
#pragma once

#include "kvcache_backend.h"

namespace kvc::kernels::test {

// The plug-in's table, each call followed by a wait. Ends the program with a message where that fails.
const kvc_backend* real_backend(const char* path);

// The emulated backend's table. Like a plug-in's it ends the program where a call is given memory that a card does not
// reach (device_memory.h).
const kvc_backend* checked_backend(const kvc_backend* emulated);

}  // namespace kvc::kernels::test

// host_reads returns whether the host can read a tensor's memory in place. The host can read its own memory, and memory
// that is pinned for a GPU.
#pragma once

#include <dlpack/dlpack.h>

namespace kvc {

inline bool host_reads(DLDevice device) noexcept {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost;
}
inline bool host_reads(const DLTensor& tensor) noexcept { return host_reads(tensor.device); }

}  // namespace kvc

// The open CUDA device. Its functions may be called by any threads at once: what changes (the upload ring) has a lock.
// Work is enqueued on the caller's stream, in the device's primary context; nothing here waits for the device but a
// full upload ring (upload.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/common/convert.h"
#include "kernels/common/fail.h"
#include "kernels/cuda/upload.h"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device {
  int ordinal;
  int multiprocessors;
  int shared_of_block, shared_of_multiprocessor;  // bytes; of a block that asks for as much as it may have
  bool simple;                                    // attention without tensor cores: "sm_90_simple" was asked for
  char names[2][20];                              // "sm_90_simple", "sm_90"
  Upload upload;
};

inline Device* device_of(kvc_backend_device* device) { return reinterpret_cast<Device*>(device); }

// KVC_OK, or DEVICE_UNAVAILABLE, OUT_OF_MEMORY or DEVICE with the error's name, the call and what it was for.
kvc_status check(cudaError_t result, const char* call, const char* purpose, kvc_error* error);

// Makes the device current on the calling thread for as long as it lives, and then the one that was.
class CurrentDevice {
 public:
  explicit CurrentDevice(const Device& device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device.ordinal;
    changed_ = before_ != device.ordinal;
    if (changed_) cudaSetDevice(device.ordinal);
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// Enqueues a kernel, by value of its parameters. name: for messages.
template <class... Parameters, class... Arguments>
kvc_status launch(const char* name, void* stream, dim3 grid, unsigned threads, size_t shared_bytes, kvc_error* error,
                  void (*kernel)(Parameters...), const Arguments&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = {threads, 1, 1};
  config.dynamicSmemBytes = shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  return check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "cudaLaunchKernelEx", name, error);
}

// Blocks of so many threads for n of them; at least one, at most what a grid can have.
inline unsigned blocks_for(int64_t n, int64_t threads) {
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > INT32_MAX ? INT32_MAX : blocks);
}

// In layer.cc, memory.cc and the .cu file of each.
#include "kernels/common/backend_functions.inl.h"
// attend.cu: whether the device runs what was compiled.
cudaError_t find_kernel_image();

}  // namespace kvc::kernels::cuda

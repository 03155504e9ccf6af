// The device's primary context, made current on the calling thread while a function of the backend runs.
//
// By the driver's functions: the runtime makes devices current, and to go back to "the device that was" it would make a
// context there, of some hundred megabytes, though the caller may never have used that device. So the context that was
// comes back, also one of other code, or none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device;

// The context, held from retain to release.
class PrimaryContext {
 public:
  kvc_status retain(int ordinal, kvc_error* error);
  void release();

 private:
  friend class CurrentDevice;
  CUcontext context_ = nullptr;  // null: not held
  CUdevice device_ = 0;
  CUresult (*get_current_)(CUcontext*) = nullptr;
  CUresult (*set_current_)(CUcontext) = nullptr;
  CUresult (*release_)(CUdevice) = nullptr;
};

inline thread_local Device* called_device = nullptr;  // whose function the thread is in

// Makes the device current on the calling thread for as long as it lives, and then what was. Meanwhile a capture of any
// stream forbids the thread nothing but what concerns that stream: else waiting for an event of our own, or an
// allocation, would end whatever capture is going on in the process.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device& device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  Device* const called_before_;
  CUresult (*const set_current_)(CUcontext);
  cudaStreamCaptureMode capture_mode_ = cudaStreamCaptureModeRelaxed;
  CUcontext before_ = nullptr;
  bool changed_ = false, exchanged_ = false;
};

}  // namespace kvc::kernels::cuda

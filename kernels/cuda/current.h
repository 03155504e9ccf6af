// Makes the device's primary context current on the calling thread while a function of the backend runs.
//
// It uses functions of the driver. The runtime's cudaSetDevice would create a context, of some hundred megabytes, on
// the device that it restores, even if the caller never used that device. The driver restores any context, also one of
// other code, or none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device;

// The id of no stream. Two streams with this id need not be the same.
constexpr unsigned long long kNoStream = ~0ull;

// The context, held from retain to release.
class PrimaryContext {
 public:
  kvc_status retain(int ordinal, kvc_error* error);
  void release();
  // A number that no other stream ever has. A handle may be that of a new stream after the old one was destroyed. The
  // handle of the calling thread's stream names another stream in each thread, and has kNoStream. No context need be
  // current.
  kvc_status id_of(void* stream, unsigned long long* id, kvc_error* error) const;

 private:
  friend class CurrentDevice;
  CUcontext context_ = nullptr;  // null: not held
  CUdevice device_ = 0;
  CUresult (*get_current_)(CUcontext*) = nullptr;
  CUresult (*set_current_)(CUcontext) = nullptr;
  CUresult (*release_)(CUdevice) = nullptr;
  CUresult (*get_stream_id_)(CUstream, unsigned long long*) = nullptr;
};

inline thread_local Device* called_device = nullptr;  // the device whose function this thread is in

// Makes the device current on the calling thread, and restores the previous context at its end. Meanwhile the thread is
// in the relaxed capture mode. Otherwise a wait for one of our events, or an allocation, would invalidate any capture
// in the process.
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

// Makes the device's primary context current on the calling thread while a function of the backend runs.
//
// This needs functions of the driver. cudaSetDevice cannot restore the previous state. It would create a primary
// context of some hundred megabytes on the previous device, even if the caller never used that device. The driver can
// restore any context, including a context of other code, or none.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

struct Device;

// The id of a stream that cannot be identified. Two streams with this id may be different streams.
constexpr unsigned long long kNoStream = ~0ull;

// The primary context of a device, from retain to release.
class PrimaryContext {
 public:
  kvc_status retain(int ordinal, kvc_error* error);
  void release();
  // Gives the id of the stream. No other stream of the process ever has the same id, but a new stream may have the
  // handle of a destroyed stream. cudaStreamPerThread gets kNoStream, because it names a different stream in each
  // thread. No context has to be current.
  kvc_status id_of(void* stream, unsigned long long* id, kvc_error* error) const;

 private:
  friend class CurrentDevice;
  CUcontext context_ = nullptr;  // null before retain and after release
  CUdevice device_ = 0;
  CUresult (*get_current_)(CUcontext*) = nullptr;
  CUresult (*set_current_)(CUcontext) = nullptr;
  CUresult (*release_)(CUdevice) = nullptr;
  CUresult (*get_stream_id_)(CUstream, unsigned long long*) = nullptr;
};

inline thread_local Device* called_device = nullptr;  // the device of the backend function that runs on this thread

// Makes the device current on the calling thread. The destructor restores the previous context. Until then, the thread
// is in the relaxed capture mode. In any other mode, an allocation or a wait for an event would invalidate captures of
// the process.
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

// Opens the backend's device on the emulation, or keeps the reason why it cannot.
#pragma once

#include "kernels/cuda/backend.h"

namespace kvc::kernels::cuda {

struct Opened {
  kvc_status status;
  kvc_error error;
  kvc_backend_device* device;
};

inline Opened open_device(int32_t device_id = 0, const char* simd = nullptr) {
  Opened opened = {KVC_OK, KVC_ERROR_INIT, nullptr};
  kvc_backend_open_args args = {};
  args.device_id = device_id;
  args.simd = simd;
  opened.status = backend_of(KVC_BACKEND_VERSION)->open(&args, &opened.device, &opened.error);
  return opened;
}

}  // namespace kvc::kernels::cuda

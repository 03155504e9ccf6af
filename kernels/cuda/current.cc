// See current.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/current.h"

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

constexpr const char* kPurpose = "a device's context";

template <class Function>
kvc_status find(const char* name, Function* function, kvc_error* error) {
  constexpr unsigned kVersion = 12000;  // the CUDA version that introduced the newest of these functions
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
  if (result != cudaSuccess) return check(result, "cudaGetDriverEntryPointByVersion", kPurpose, error);
  *function = reinterpret_cast<Function>(found);
  if (status == cudaDriverEntryPointSuccess && found != nullptr) return KVC_OK;
  return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "the CUDA driver has no %s", name);
}

kvc_status check_driver(CUresult result, const char* call, int ordinal, kvc_error* error) {
  if (result == CUDA_SUCCESS) return KVC_OK;
  return fail(error, KVC_ERROR_DEVICE_UNAVAILABLE, "CUDA device %d cannot be used: %s gave %d", ordinal, call,
              static_cast<int>(result));
}

}  // namespace

kvc_status PrimaryContext::retain(int ordinal, kvc_error* error) {
  CUresult (*get_device)(CUdevice*, int) = nullptr;
  CUresult (*retain_primary)(CUcontext*, CUdevice) = nullptr;
  kvc_status status = find("cuDeviceGet", &get_device, error);
  if (status == KVC_OK) status = find("cuDevicePrimaryCtxRetain", &retain_primary, error);
  if (status == KVC_OK) status = find("cuDevicePrimaryCtxRelease", &release_, error);
  if (status == KVC_OK) status = find("cuCtxGetCurrent", &get_current_, error);
  if (status == KVC_OK) status = find("cuCtxSetCurrent", &set_current_, error);
  if (status == KVC_OK) status = find("cuStreamGetId", &get_stream_id_, error);
  if (status == KVC_OK) status = check_driver(get_device(&device_, ordinal), "cuDeviceGet", ordinal, error);
  if (status == KVC_OK) {
    status = check_driver(retain_primary(&context_, device_), "cuDevicePrimaryCtxRetain", ordinal, error);
  }
  return status;
}

kvc_status PrimaryContext::id_of(void* stream, unsigned long long* id, kvc_error* error) const {
  constexpr unsigned long long kNullStream = kNoStream - 1;
  if (stream == nullptr || stream == static_cast<void*>(cudaStreamLegacy)) {
    *id = kNullStream;
    return KVC_OK;
  }
  if (stream == static_cast<void*>(cudaStreamPerThread)) {
    *id = kNoStream;
    return KVC_OK;
  }
  const CUresult result = get_stream_id_(static_cast<CUstream>(stream), id);
  if (result == CUDA_SUCCESS) return KVC_OK;
  return fail(error, KVC_ERROR_DEVICE_FAILED, "cuStreamGetId for the stream of a call gave %d",
              static_cast<int>(result));
}

void PrimaryContext::release() {
  if (context_ != nullptr) release_(device_);
  context_ = nullptr;
}

// If no context is current, a call of the CUDA runtime creates one. So the device's context is set before the first
// such call.
CurrentDevice::CurrentDevice(Device& device)
    : called_before_(called_device), set_current_(device.context.set_current_) {
  called_device = &device;
  const PrimaryContext& context = device.context;
  // These calls fail while the process ends, and in a forked child. Then the context stays as it is.
  changed_ = context.get_current_(&before_) == CUDA_SUCCESS && before_ != context.context_ &&
             set_current_(context.context_) == CUDA_SUCCESS;
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&capture_mode_) == cudaSuccess;
}

CurrentDevice::~CurrentDevice() {
  if (exchanged_) cudaThreadExchangeStreamCaptureMode(&capture_mode_);
  if (changed_) set_current_(before_);
  called_device = called_before_;
}

}  // namespace kvc::kernels::cuda

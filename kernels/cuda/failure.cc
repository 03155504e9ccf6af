// Errors of the runtime. An error of one call is reported once. A permanent error means that the process has lost the
// device's context.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

// Whether the runtime returns this error from every later call until the process ends.
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:   // cudaDeviceReset
    case cudaErrorInitializationError:  // in a child forked by a process that used CUDA
      return true;
    default:
      return false;
  }
}

}  // namespace

kvc_status check(cudaError_t result, const char* call, const char* purpose, kvc_error* error) {
  if (result == cudaSuccess) return KVC_OK;
  cudaGetLastError();  // clears the error, unless it is permanent
  if (is_sticky(result) && called_device != nullptr) {
    int none = cudaSuccess;
    Device& device = *called_device;
    // The value is -1 while the message is written. So other threads read the message only when it is complete.
    if (device.failure.compare_exchange_strong(none, -1, std::memory_order_acquire)) {
      snprintf(device.failed_call, sizeof device.failed_call, "%s for %s", call, purpose);
      device.failure.store(result, std::memory_order_release);
    }
  }
  const kvc_status code = result == cudaErrorMemoryAllocation ? KVC_ERROR_OUT_OF_MEMORY : KVC_ERROR_DEVICE_FAILED;
  return fail(error, code, "%s for %s: %s (%s)", call, purpose, cudaGetErrorName(result), cudaGetErrorString(result));
}

kvc_status capture_of(void* stream, const char* what, unsigned long long* capture, kvc_error* error) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  *capture = 0;
  const cudaError_t asked = cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, capture);
  if (asked == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return fail(
        error, KVC_ERROR_ORDER,
        "%s; the NULL stream cannot be used while a stream that waits for it is being captured: pass another stream",
        what);
  }
  if (asked != cudaSuccess) return check(asked, "cudaStreamGetCaptureInfo", what, error);
  if (status == cudaStreamCaptureStatusNone) *capture = 0;
  return KVC_OK;
}

kvc_status check_not_captured(void* stream, const char* what, kvc_error* error) {
  unsigned long long capture = 0;
  const kvc_status asked = capture_of(stream, what, &capture, error);
  if (asked != KVC_OK || capture == 0) return asked;
  return fail(error, KVC_ERROR_ORDER,
              "%s, so its stream must not be captured; only append, attend and copies of states can be captured, in a "
              "forward of a kvc_graph, after a step with the same calls that was not captured",
              what);
}

kvc_status check_stream(kvc_backend_device* opened, void* stream, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  return check_not_captured(stream, "a call begins or ends a cache's work", error);
}

kvc_status health(kvc_backend_device* opened, kvc_error* error) {
  const Device& device = *device_of(opened);
  const int failure = device.failure.load(std::memory_order_acquire);
  if (failure == cudaSuccess || failure == -1) return KVC_OK;
  return fail(error, KVC_ERROR_DEVICE_FAILED,
              "CUDA device %d failed before, and works again in a new process only: %s met %s; destroy what is on it",
              device.ordinal, device.failed_call, cudaGetErrorName(static_cast<cudaError_t>(failure)));
}

}  // namespace kvc::kernels::cuda

// Events, with which the core orders streams, and streams of the core's own.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {
namespace {

constexpr const char* kPurpose = "the order of a cache's work";

cudaEvent_t event_of(kvc_backend_event* event) { return reinterpret_cast<cudaEvent_t>(event); }

}  // namespace

kvc_status event_create(kvc_backend_device* opened, kvc_backend_event** event, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  cudaEvent_t made = nullptr;
  const kvc_status status =
      check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags", kPurpose, error);
  *event = reinterpret_cast<kvc_backend_event*>(made);
  return status;
}

void event_destroy(kvc_backend_device* opened, kvc_backend_event* event) {
  const CurrentDevice current(*device_of(opened));
  cudaEventDestroy(event_of(event));
}

kvc_status event_record(kvc_backend_device* opened, kvc_backend_event* event, void* stream, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  return check(cudaEventRecord(event_of(event), static_cast<cudaStream_t>(stream)), "cudaEventRecord", kPurpose, error);
}

kvc_status event_wait(kvc_backend_device* opened, kvc_backend_event* event, void* stream, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event_of(event), 0), "cudaStreamWaitEvent",
               kPurpose, error);
}

kvc_status stream_create(kvc_backend_device* opened, void** stream, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  cudaStream_t made = nullptr;
  const kvc_status status = check(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
                                  "a stream of the cache's own", error);
  *stream = made;
  return status;
}

void stream_destroy(kvc_backend_device* opened, void* stream) {
  const CurrentDevice current(*device_of(opened));
  cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  cudaStreamDestroy(static_cast<cudaStream_t>(stream));
}

}  // namespace kvc::kernels::cuda

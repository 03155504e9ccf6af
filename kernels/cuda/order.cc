// Functions for events and streams. The core orders the streams of a cache's callers with these events.
// SPDX-License-Identifier: Apache-2.0
#include <new>

#include "kernels/cuda/device.h"

struct kvc_backend_event {
  cudaEvent_t event;
  unsigned long long stream;  // the id of the stream on which the event was recorded; kNoStream: unknown
};

namespace kvc::kernels::cuda {
namespace {

constexpr const char* kPurpose = "the order of a cache's work";

}  // namespace

kvc_status event_create(kvc_backend_device* opened, kvc_backend_event** event, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  auto* const made = new (std::nothrow) kvc_backend_event{nullptr, kNoStream};
  if (made == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for an event");
  const kvc_status status = check(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming),
                                  "cudaEventCreateWithFlags", kPurpose, error);
  if (status == KVC_OK) {
    *event = made;
  } else {
    delete made;
  }
  return status;
}

void event_destroy(kvc_backend_device* opened, kvc_backend_event* event) {
  const CurrentDevice current(*device_of(opened));
  cudaEventDestroy(event->event);
  delete event;
}

kvc_status event_record(kvc_backend_device* opened, kvc_backend_event* event, void* stream, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);  // made first: a capture in another thread could make the calls below fail
  event->stream = kNoStream;            // stays so if the record fails
  unsigned long long id = kNoStream;
  kvc_status status = device.context.id_of(stream, &id, error);
  if (status != KVC_OK) return status;
  status = check(cudaEventRecord(event->event, static_cast<cudaStream_t>(stream)), "cudaEventRecord", kPurpose, error);
  if (status == KVC_OK) event->stream = id;
  return status;
}

kvc_status event_wait(kvc_backend_device* opened, kvc_backend_event* event, void* stream, kvc_error* error) {
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  unsigned long long id = kNoStream;
  const kvc_status status = device.context.id_of(stream, &id, error);
  if (status != KVC_OK || (id == event->stream && id != kNoStream)) return status;
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event->event, 0), "cudaStreamWaitEvent", kPurpose,
               error);
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

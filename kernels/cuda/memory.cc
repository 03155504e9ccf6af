// Device memory: zeroed allocations, and copies to and from the host. Pinned memory of the host.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

// Ignores the requested alignment, because cudaMalloc aligns to 256 bytes. Callers request a larger alignment only for
// the page sizes of host memory.
kvc_status allocate(kvc_backend_device* device, int64_t bytes, int64_t, int32_t, void** memory, kvc_error* error) {
  const CurrentDevice current(*device_of(device));
  const cudaStream_t setup = device_of(device)->setup;
  const auto size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  void* base = nullptr;
  cudaError_t result = cudaMalloc(&base, size);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const kvc_status status =
        fail(error, KVC_ERROR_OUT_OF_MEMORY, "the device refused %lld bytes of memory", static_cast<long long>(bytes));
    error->required = bytes;
    return status;
  }
  if (result == cudaSuccess) {
    result = cudaMemsetAsync(base, 0, size, setup);
    if (result == cudaSuccess) result = cudaStreamSynchronize(setup);
    if (result == cudaSuccess) {
      *memory = base;
      return KVC_OK;
    }
    cudaFree(base);
  }
  return check(result, "cudaMalloc, cudaMemsetAsync or cudaStreamSynchronize", "memory of a cache", error);
}

void release(kvc_backend_device* device, void* memory, int64_t) {
  const CurrentDevice current(*device_of(device));
  if (memory != nullptr) cudaFree(memory);
}

// Uses the setup stream. The NULL stream would wait for work of other streams, and cannot be used while one of these
// streams is captured.
kvc_status copy_and_wait(Device& device, void* target, const void* source, int64_t bytes, const char* purpose,
                         kvc_error* error) {
  cudaError_t result = cudaMemcpyAsync(target, source, static_cast<size_t>(bytes), cudaMemcpyDefault, device.setup);
  if (result == cudaSuccess) result = cudaStreamSynchronize(device.setup);
  return check(result, "cudaMemcpyAsync or cudaStreamSynchronize", purpose, error);
}

// Copies through the pinned memory of the upload ring. Each piece fits into a slot, so no slot has to grow.
kvc_status upload(kvc_backend_device* opened, void* target, const void* source, int64_t bytes, int32_t wait,
                  void* stream, kvc_error* error) {
  constexpr int64_t kPieceBytes = 64 * 1024;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  if (wait != 0) return copy_and_wait(device, target, source, bytes, "an upload", error);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    Piece piece =
        piece_of(static_cast<const char*>(source) + begin, bytes - begin < kPieceBytes ? bytes - begin : kPieceBytes);
    kvc_status status = device.upload.take(&piece, 1, stream, error);
    if (status == KVC_OK) {
      status = device.upload.send_to(static_cast<char*>(target) + begin, piece.bytes, stream, error);
    }
    if (status != KVC_OK) return status;
  }
  return KVC_OK;
}

kvc_status download(kvc_backend_device* opened, void* target, const void* source, int64_t bytes, void* stream,
                    kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  const auto on = static_cast<cudaStream_t>(stream);
  cudaError_t result = cudaMemcpyAsync(target, source, static_cast<size_t>(bytes), cudaMemcpyDefault, on);
  if (result == cudaSuccess) result = cudaStreamSynchronize(on);
  return check(result, "cudaMemcpyAsync or cudaStreamSynchronize", "a download", error);
}

// Allocates the memory instead of registering memory of the process (cudaHostRegister). The driver leaves memory of
// cudaHostAlloc out of a fork(). Registered pages could be copied on a write after a fork(), and the device would use
// the old pages.
kvc_status pin(kvc_backend_device* device, int64_t bytes, void** memory, kvc_error* error) {
  const CurrentDevice current(*device_of(device));
  const cudaError_t result = cudaHostAlloc(memory, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    const kvc_status status =
        fail(error, KVC_ERROR_OUT_OF_MEMORY, "the device refused %lld bytes of pinned host memory",
             static_cast<long long>(bytes));
    error->required = bytes;
    return status;
  }
  return check(result, "cudaHostAlloc", "pinned memory of a tier", error);
}

void unpin(kvc_backend_device* device, void* memory) {
  const CurrentDevice current(*device_of(device));
  cudaFreeHost(memory);
}

kvc_status copy_pinned(kvc_backend_device* opened, void* target, const void* source, int64_t bytes, int32_t wait,
                       void* stream, kvc_error* error) {
  const CurrentDevice current(*device_of(opened));
  const auto on = static_cast<cudaStream_t>(stream);
  cudaError_t result = cudaSuccess;
  if (bytes > 0) result = cudaMemcpyAsync(target, source, static_cast<size_t>(bytes), cudaMemcpyDefault, on);
  if (result == cudaSuccess && wait != 0) result = cudaStreamSynchronize(on);
  return check(result, "cudaMemcpyAsync or cudaStreamSynchronize", "a copy of pinned memory", error);
}

}  // namespace kvc::kernels::cuda

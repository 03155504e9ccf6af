// Device memory: plain allocations, zeroed.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

// What asks for more than cudaMalloc's 256 bytes of alignment does so for a host's pages and their sizes: here none.
kvc_status allocate(kvc_backend_device* device, int64_t bytes, int64_t, int32_t, void** memory, kvc_error* error) {
  const CurrentDevice current(*device_of(device));
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
    // On the NULL stream, which others need not wait for.
    result = cudaMemset(base, 0, size);
    if (result == cudaSuccess) result = cudaStreamSynchronize(nullptr);
    if (result == cudaSuccess) {
      *memory = base;
      return KVC_OK;
    }
    cudaFree(base);
  }
  return check(result, "cudaMalloc, cudaMemset or cudaStreamSynchronize", "memory of a cache", error);
}

void release(kvc_backend_device* device, void* memory, int64_t) {
  const CurrentDevice current(*device_of(device));
  if (memory != nullptr) cudaFree(memory);
}

// From pageable memory cudaMemcpy returns when it has read the source, and the target follows in the order of the NULL
// stream, which streams of others need not wait for.
kvc_status copy_and_wait(void* target, const void* source, int64_t bytes, const char* purpose, kvc_error* error) {
  cudaError_t result = cudaMemcpy(target, source, static_cast<size_t>(bytes), cudaMemcpyDefault);
  if (result == cudaSuccess) result = cudaStreamSynchronize(nullptr);
  return check(result, "cudaMemcpy or cudaStreamSynchronize", purpose, error);
}

// By way of the ring, in pieces that no slot grows for.
kvc_status upload(kvc_backend_device* opened, void* target, const void* source, int64_t bytes, int32_t wait,
                  void* stream, kvc_error* error) {
  constexpr int64_t kPieceBytes = 64 * 1024;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  if (wait != 0) return copy_and_wait(target, source, bytes, "an upload", error);
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    Piece piece =
        piece_of(static_cast<const char*>(source) + begin, bytes - begin < kPieceBytes ? bytes - begin : kPieceBytes);
    const kvc_status status = with_upload(&device.upload, &piece, 1, stream, error, [&] {
      return check(cudaMemcpyAsync(static_cast<char*>(target) + begin, piece.device, static_cast<size_t>(piece.bytes),
                                   cudaMemcpyDefault, static_cast<cudaStream_t>(stream)),
                   "cudaMemcpyAsync", "an upload", error);
    });
    if (status != KVC_OK) return status;
  }
  return KVC_OK;
}

}  // namespace kvc::kernels::cuda

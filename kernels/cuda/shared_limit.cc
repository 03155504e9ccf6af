// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/shared_limit.h"

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

kvc_status SharedLimits::raise(const void* kernel, int bytes, const char* purpose, kvc_error* error) {
  const auto first = static_cast<int>(reinterpret_cast<uintptr_t>(kernel) / 16 % kPlaces);
  int place = first;
  for (int i = 0; i < kPlaces; ++i) {
    place = (first + i) % kPlaces;
    const void* const known = raised_[place].load(std::memory_order_acquire);
    if (known == kernel) return KVC_OK;
    if (known == nullptr) break;
  }
  const kvc_status status = check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                                  "cudaFuncSetAttribute", purpose, error);
  // If another thread has just taken the place, or none is free, a later use calls the driver again.
  const void* none = nullptr;
  if (status == KVC_OK) raised_[place].compare_exchange_strong(none, kernel, std::memory_order_release);
  return status;
}

}  // namespace kvc::kernels::cuda

// See faults.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/faults.h"

#include <string.h>

#include "kernels/cuda/device.h"

namespace kvc::kernels::cuda {

Faults::~Faults() {
  if (sink_.taken != nullptr) cudaFree(sink_.taken);
  if (record_ != nullptr) cudaFreeHost(record_);
}

kvc_status Faults::open(kvc_backend_device* device, kvc_error* error) {
  constexpr const char* kPurpose = "the record of validation";
  void *host = nullptr, *on_device = nullptr, *taken = nullptr;
  kvc_status status = check(cudaHostAlloc(&host, sizeof(FaultRecord), cudaHostAllocMapped | cudaHostAllocPortable),
                            "cudaHostAlloc", kPurpose, error);
  if (status != KVC_OK) return status;
  record_ = static_cast<FaultRecord*>(host);
  *record_ = {};
  record_->asked = 1;
  status = check(cudaHostGetDevicePointer(&on_device, host, 0), "cudaHostGetDevicePointer", kPurpose, error);
  if (status == KVC_OK) status = allocate(device, sizeof(uint32_t), 256, 0, &taken, error);
  if (status == KVC_OK) sink_ = {static_cast<FaultRecord*>(on_device), static_cast<uint32_t*>(taken)};
  return status;
}

bool Faults::take(kvc_backend_fault* fault) {
  if (record_ == nullptr) return false;
  uint32_t asked = __atomic_load_n(&record_->asked, __ATOMIC_RELAXED);
  if (__atomic_load_n(&record_->written, __ATOMIC_ACQUIRE) != asked) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  asked = __atomic_load_n(&record_->asked, __ATOMIC_RELAXED);
  if (__atomic_load_n(&record_->written, __ATOMIC_ACQUIRE) != asked)
    return false;  // another thread has taken the report
  *fault = record_->fault;
  __atomic_store_n(&record_->asked, asked + 1, __ATOMIC_RELEASE);
  return true;
}

int32_t take_fault(kvc_backend_device* opened, kvc_backend_fault* fault) {
  return device_of(opened)->faults.take(fault) ? 1 : 0;
}

}  // namespace kvc::kernels::cuda

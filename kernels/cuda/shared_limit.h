// Lets kernels use more than 48 KiB of shared memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// The limit of shared memory belongs to a kernel, for all threads of the process. It is always set to the same value,
// because another thread may be about to launch the kernel with more shared memory. Thread-safe.
class SharedLimits {
 public:
  // Raises the limit of a kernel to `bytes`. Calls the driver only at the first use of a kernel. purpose: for error
  // messages.
  kvc_status raise(const void* kernel, int bytes, const char* purpose, kvc_error* error);

 private:
  static constexpr int kPlaces = 256;  // more than there are kernels
  std::atomic<const void*> raised_[kPlaces] = {};
};

}  // namespace kvc::kernels::cuda

// The only symbol that the plug-in exports.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/backend.h"

extern "C" __attribute__((visibility("default"))) const kvc_backend* kvc_backend_get(uint32_t version) {
  return kvc::kernels::cuda::backend_of(version);
}

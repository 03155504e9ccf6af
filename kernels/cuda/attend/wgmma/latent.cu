// The instances of attend_wgmma_latent_kernel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/latent.cuh"

namespace kvc::kernels::cuda {

WgmmaKernel wgmma_latent_kernel(Type type, bool listed, bool packed) {
  if (packed)
    return listed ? attend_wgmma_latent_kernel<Bf16, true, true> : attend_wgmma_latent_kernel<Bf16, false, true>;
  if (type == Type::kF16) {
    return listed ? attend_wgmma_latent_kernel<F16, true, false> : attend_wgmma_latent_kernel<F16, false, false>;
  }
  return listed ? attend_wgmma_latent_kernel<Bf16, true, false> : attend_wgmma_latent_kernel<Bf16, false, false>;
}

}  // namespace kvc::kernels::cuda

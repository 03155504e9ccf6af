// The instances of attend_wgmma_latent_kernel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/latent.cuh"

namespace kvc::kernels::cuda {

WgmmaKernel wgmma_latent_kernel(bool is_f16, bool listed) {
  if (listed) return is_f16 ? attend_wgmma_latent_kernel<F16, true> : attend_wgmma_latent_kernel<Bf16, true>;
  return is_f16 ? attend_wgmma_latent_kernel<F16, false> : attend_wgmma_latent_kernel<Bf16, false>;
}

}  // namespace kvc::kernels::cuda

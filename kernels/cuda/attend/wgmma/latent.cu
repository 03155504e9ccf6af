// The instances of attend_wgmma_latent_kernel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/latent.cuh"

namespace kvc::kernels::cuda {

WgmmaKernel wgmma_latent_kernel(bool is_f16) {
  return is_f16 ? attend_wgmma_latent_kernel<F16> : attend_wgmma_latent_kernel<Bf16>;
}

}  // namespace kvc::kernels::cuda

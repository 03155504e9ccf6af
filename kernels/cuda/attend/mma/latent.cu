// The instances of attend_latent_kernel for keys that are used as stored.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/latent.cuh"

namespace kvc::kernels::cuda {

MmaKernel latent_kernel(const MmaCall& call) { return latent_kernel_of<false>(call); }

}  // namespace kvc::kernels::cuda

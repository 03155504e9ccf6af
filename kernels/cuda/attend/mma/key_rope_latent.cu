// The instances of attend_latent_kernel for keys that are rotated on read.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/latent.cuh"

namespace kvc::kernels::cuda {

MmaKernel rotated_latent_kernel(const MmaCall& call) { return latent_kernel_of<true>(call); }

}  // namespace kvc::kernels::cuda

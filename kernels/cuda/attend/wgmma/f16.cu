// The warpgroup kernel of float16. Each type has its own file, so that they compile in parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/kernel.cuh"

namespace kvc::kernels::cuda {

WgmmaKernel wgmma_kernel_of_f16(int32_t dims, bool raw) { return wgmma_kernel_of<F16>(dims, raw); }

}  // namespace kvc::kernels::cuda

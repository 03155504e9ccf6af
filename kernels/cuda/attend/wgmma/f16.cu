// The instances of attend_wgmma_kernel for float16. Each type has a file of its own, so that the instances compile in
// parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/wgmma/kernel.cuh"

namespace kvc::kernels::cuda {

WgmmaKernel wgmma_kernel_of_f16(int32_t dims, bool raw) { return wgmma_kernel_of<F16>(dims, raw); }

}  // namespace kvc::kernels::cuda

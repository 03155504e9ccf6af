// The tensor-core kernel of bfloat16 queries. Each type has its own file, so that they compile in parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/kernel.cuh"

namespace kvc::kernels::cuda {

MmaKernel mma_kernel_of_bf16(const MmaCall& call) { return mma_kernel_of<Bf16, Bf16, false>(call); }

}  // namespace kvc::kernels::cuda

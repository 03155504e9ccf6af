// The instances of attend_mma_kernel for bfloat16 queries and keys that are rotated on read. Each type has a file of
// its own, so that the instances compile in parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/kernel.cuh"

namespace kvc::kernels::cuda {

MmaKernel rotated_kernel_of_bf16(const MmaCall& call) { return mma_kernel_of<Bf16, Bf16, true>(call); }

}  // namespace kvc::kernels::cuda

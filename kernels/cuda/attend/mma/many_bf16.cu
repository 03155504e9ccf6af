// The instances of attend_many_kernel for bfloat16.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/many_rows.cuh"

namespace kvc::kernels::cuda {

MmaKernel many_kernel_of_bf16(const MmaCall& call) { return many_kernel_of<Bf16>(call); }

}  // namespace kvc::kernels::cuda

// The tensor-core kernel of float16 queries, over keys that are rotated on read. (A file a type: they compile at
// the same time.)
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/kernel.cuh"

namespace kvc::kernels::cuda {

// P takes the scales of tokens, which float16 may not hold: bfloat16 where there are any.
MmaKernel turned_kernel_of_f16(const MmaCall& call) {
  const bool token_scales = stored_type(call.attend.layer) == Type::kI8;
  return token_scales ? mma_kernel_of<F16, Bf16, true>(call) : mma_kernel_of<F16, F16, true>(call);
}

}  // namespace kvc::kernels::cuda

// The tensor-core kernel of float16 queries over keys that are rotated on read. Each type has its own file, so that
// they compile in parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/kernel.cuh"

namespace kvc::kernels::cuda {

// With scales of tokens, P is bfloat16, because float16 may not hold P times a scale.
MmaKernel turned_kernel_of_f16(const MmaCall& call) {
  const bool token_scales = stored_type(call.attend.layer) == Type::kI8;
  return token_scales ? mma_kernel_of<F16, Bf16, true>(call) : mma_kernel_of<F16, F16, true>(call);
}

}  // namespace kvc::kernels::cuda

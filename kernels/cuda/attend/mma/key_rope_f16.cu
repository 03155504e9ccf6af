// The instances of attend_mma_kernel for float16 queries and keys that are rotated on read. Each type has a file of its
// own, so that the instances compile in parallel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/mma/kernel.cuh"

namespace kvc::kernels::cuda {

// With scales of tokens, P is bfloat16, because P times a scale may be too large for float16.
MmaKernel rotated_kernel_of_f16(const MmaCall& call) {
  const bool token_scales = tokens_have_scales(stored_type(call.attend.layer));
  return token_scales ? mma_kernel_of<F16, Bf16, true>(call) : mma_kernel_of<F16, F16, true>(call);
}

}  // namespace kvc::kernels::cuda

// Attention of few rows: float16 queries, K and V of int8. P is bfloat16, because float16 may not hold P times a scale.
// Each pair of types has its own file, so that they compile in parallel.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/decode/kernel.cuh"

namespace kvc::kernels::cuda {

DecodeKernel decode_kernel_of_f16_i8(const kvc_backend_layer& layer) {
  return decode_kernel_of<F16, Bf16, Type::kI8>(layer);
}

}  // namespace kvc::kernels::cuda

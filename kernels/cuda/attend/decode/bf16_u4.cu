// The instances of attend_decode_kernel for bfloat16 queries, and K and V of uint4. Each pair of types has a file of
// its own, so that the instances compile in parallel.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/decode/kernel.cuh"

namespace kvc::kernels::cuda {

DecodeKernel decode_kernel_of_bf16_u4(const kvc_backend_layer& layer) {
  return decode_kernel_of<Bf16, Bf16, Type::kU4>(layer);
}

}  // namespace kvc::kernels::cuda

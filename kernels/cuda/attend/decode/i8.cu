// The instances of attend_decode_kernel for K and V of int8, and queries of float16 or bfloat16
// (attend/decode/bytes.cuh).
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/decode/kernel.cuh"

namespace kvc::kernels::cuda {

DecodeKernel decode_kernel_of_i8(const kvc_backend_layer& layer) {
  return decode_kernel_of<F16, Bf16, Type::kI8>(layer);
}

}  // namespace kvc::kernels::cuda

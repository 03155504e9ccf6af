// The instances of attend_decode_kernel for K and V of float4_e2m1fn, and queries of float16 or bfloat16
// (attend/decode/bytes.cuh and blocks.cuh).
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/decode/kernel.cuh"

namespace kvc::kernels::cuda {

DecodeKernel decode_kernel_of_e2m1(const kvc_backend_layer& layer) {
  return decode_kernel_of<F16, F16, Type::kE2m1>(layer);
}

}  // namespace kvc::kernels::cuda

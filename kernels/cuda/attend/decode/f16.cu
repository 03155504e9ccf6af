// The instances of attend_decode_kernel for float16 queries, and K and V of float16. Each pair of types has a file of
// its own, so that the instances compile in parallel.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/decode/kernel.cuh"

namespace kvc::kernels::cuda {

DecodeKernel decode_kernel_of_f16(const kvc_backend_layer& layer) {
  return decode_kernel_of<F16, F16, Type::kF16>(layer);
}

}  // namespace kvc::kernels::cuda

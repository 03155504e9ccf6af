// The tensor-core kernel of latent rows: its instances.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend_latent.cuh"

namespace kvc::kernels::cuda {

MmaKernel latent_kernel(const MmaCall& call) {
  return type_of(call.attend.args.q.dtype) == Type::kF16 ? latent_kernel_of<F16>(call) : latent_kernel_of<Bf16>(call);
}

}  // namespace kvc::kernels::cuda

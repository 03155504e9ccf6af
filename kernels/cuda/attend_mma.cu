// Which instance of the tensor-core kernel computes a call, and its launch.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend_mma.cuh"
#include "kernels/cuda/attend_mma.h"

namespace kvc::kernels::cuda {
namespace {

using MmaKernel = void (*)(MmaCall);

template <class Q, class P, int kKeyWarps>
MmaKernel kernel_of_dims(int32_t v_head_dim) {
  if (v_head_dim <= 128) return attend_mma_kernel<Q, P, 128, kKeyWarps>;
  return attend_mma_kernel<Q, P, kMaxMmaDim, kKeyWarps>;
}

// P takes the scales of tokens, which float16 may not hold: bfloat16 where there are any.
template <int kKeyWarps>
MmaKernel kernel_of(const kvc_backend_attend& args, const kvc_backend_layer& layer) {
  if (type_of(args.q.dtype) == Type::kBf16) return kernel_of_dims<Bf16, Bf16, kKeyWarps>(layer.v_head_dim);
  if (type_of(layer.dtype) == Type::kI8) return kernel_of_dims<F16, Bf16, kKeyWarps>(layer.v_head_dim);
  return kernel_of_dims<F16, F16, kKeyWarps>(layer.v_head_dim);
}

}  // namespace

MmaShape mma_shape(const Device& device, const kvc_backend_layer& layer, int32_t rows) {
  return shape_of_block(layer, rows, static_cast<int32_t>(sizeof(MmaFixed)), device.shared_of_block,
                        device.shared_of_multiprocessor);
}

kvc_status launch_mma(const AttendCall& call, const MmaShape& shape, int64_t blocks, void* stream, kvc_error* error) {
  MmaCall mma = {call, shape, 0};
  const bool scaled =
      call.layer.k_scales.data != nullptr || call.args.q_scales.data != nullptr || call.args.k_scales.data != nullptr;
  mma.has_units = scaled ? 1 : 0;
  const MmaKernel kernel =
      shape.rows == kFewRows ? kernel_of<4>(call.args, call.layer) : kernel_of<1>(call.args, call.layer);
  const cudaError_t result = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes);
  const kvc_status status = check(result, "cudaFuncSetAttribute", "attend on tensor cores", error);
  if (status != KVC_OK) return status;
  return launch("attend on tensor cores", stream, {static_cast<unsigned>(blocks), 1, 1}, kAttendThreads,
                static_cast<size_t>(shape.shared_bytes), error, kernel, mma);
}

}  // namespace kvc::kernels::cuda

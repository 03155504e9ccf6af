// Chooses the instance of the tensor-core kernels for a call, and launches it.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/common/live_grid.h"
#include "kernels/cuda/attend/mma/kernel.cuh"
#include "kernels/cuda/attend/mma/launch.h"
#include "kernels/cuda/attend/mma/many_rows.cuh"

namespace kvc::kernels::cuda {

cudaError_t read_own_shared_bytes(int32_t* bytes) {
  cudaFuncAttributes attributes;
  const cudaError_t result =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(mma_kernel_of_bf16(MmaCall())));
  if (result == cudaSuccess) *bytes = static_cast<int32_t>(attributes.sharedSizeBytes);
  return result;
}

MmaShape mma_shape(const Device& device, const kvc_backend_layer& layer, int32_t rows, const MmaNeeds& needs) {
  return shape_of_block(layer, rows, needs, kMmaSizes, device.shared_of_block, device.shared_of_multiprocessor);
}

namespace {
// Returns the shape for attend_many_kernel if this kernel can compute the call's blocks of many rows. Otherwise
// `stages` of the result is 0.
MmaShape shape_of_many(const Device& device, const AttendCall& call) {
  kvc_backend_attend host = call.args;
  host.layer = &call.layer;
  host.plan = &call.plan;
  if (why_not_many(host) != nullptr) return {};
  return many_shape(call.layer, static_cast<int32_t>(sizeof(ManyFixed)), device.shared_of_block);
}
}  // namespace

kvc_status launch_mma(const Device& device, const AttendCall& call, const MmaShape& general, int64_t blocks,
                      void* stream, kvc_error* error) {
  const MmaShape of_many = general.cut.rows == kManyRows.rows ? shape_of_many(device, call) : MmaShape{};
  const bool is_many = of_many.stages > 0;
  const MmaShape& shape = is_many ? of_many : general;
  MmaCall mma = {call, shape, 0, stored_type(call.layer) == Type::kU4 ? ~15u : ~0u};
  const bool scaled =
      call.layer.k_scales.data != nullptr || call.args.q_scales.data != nullptr || call.args.k_scales.data != nullptr;
  mma.has_units = scaled ? 1 : 0;
  const bool is_f16 = type_of(call.args.q.dtype) == Type::kF16, turns = shape.rotated_end > 0;
  const MmaKernel kernel = is_many                 ? (is_f16 ? many_kernel_of_f16(mma) : many_kernel_of_bf16(mma))
                           : is_latent(call.layer) ? (turns ? rotated_latent_kernel(mma) : latent_kernel(mma))
                           : is_f16                ? (turns ? rotated_kernel_of_f16(mma) : mma_kernel_of_f16(mma))
                                                   : (turns ? rotated_kernel_of_bf16(mma) : mma_kernel_of_bf16(mma));
  const kvc_status status = allow_shared(device, kernel, "attend on tensor cores", error);
  if (status != KVC_OK) return status;
  if (!is_latent(call.layer)) {
    const kvc_status capped = cap_blocks(device, call.live_blocks, reinterpret_cast<const void*>(kernel),
                                         shape.cut.warps * kWarpSize, shape.shared_bytes, &blocks, error);
    if (capped != KVC_OK) return capped;
  }
  // The number of thread blocks for each block of the plan.
  const int32_t parts = has_lists(call)                    ? call.listed.row_blocks
                        : shape.cut.rows == kManyRows.rows ? call.many_rows / kManyRows.rows
                                                           : 1;
  return launch("attend on tensor cores", stream, {static_cast<unsigned>(blocks), static_cast<unsigned>(parts), 1},
                shape.cut.warps * kWarpSize, static_cast<size_t>(shape.shared_bytes), error, kernel, mma);
}

}  // namespace kvc::kernels::cuda

// Chooses the instance of the simple kernel for a call, and launches it.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/convert.h"
#include "kernels/common/layer_check.h"
#include "kernels/common/stored_format.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/simple/kernel.cuh"
#include "kernels/cuda/attend/simple/launch.h"
#include "kernels/cuda/attend/simple/plan.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

kvc_status launch_simple(const AttendCall& call, int64_t blocks, void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  constexpr int64_t kFixed = static_cast<int64_t>(sizeof(Fixed)), kFloats = (kMaxSharedBytes - kFixed) / 4;
  static_assert(block_floats(1, kMaxHeadDim, kMaxHeadDim) + kAttendWarps * kMaxHeadDim <= kFloats);
  const bool gathers = has_rotated_rows(layer.format) && call.args.key_tables != nullptr;
  const int32_t key_floats = gathers ? kAttendWarps * layer.head_dim : 0;
  const int32_t rows = rows_of_block(kFloats - key_floats, layer.head_dim, layer.v_head_dim);
  const SimpleCall simple = {call, rows};
  const int64_t shared = kFixed + 4 * (block_floats(rows, layer.head_dim, layer.v_head_dim) + key_floats);
  const unsigned parts = has_lists(call) ? static_cast<unsigned>(call.listed.row_blocks) : 1;
  const auto run = [&](auto kernel) {
    return launch("attend", stream, {static_cast<unsigned>(blocks), parts, 1}, kAttendThreads,
                  static_cast<size_t>(shared), error, kernel, simple);
  };
  switch (stored_type(layer)) {
    case Type::kF32:
      return run(attend_kernel<float>);
    case Type::kF16:
      return run(attend_kernel<F16>);
    case Type::kE4m3:
      return run(attend_kernel<E4m3>);
    case Type::kE5m2:
      return run(attend_kernel<E5m2>);
    case Type::kI8:
      return run(attend_kernel<I8>);
    case Type::kDsMla:
      return run(attend_kernel<DsMla>);
    case Type::kU4:
      return run(attend_kernel<U4>);
    case Type::kE2m1:
      return run(attend_kernel<E2m1>);
    default:
      return run(attend_kernel<Bf16>);
  }
}

}  // namespace kvc::kernels::cuda

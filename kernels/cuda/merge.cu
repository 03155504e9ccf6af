// merge: normalised results of attention over disjoint keys, by their LSE, left to right into the result; a warp a
// row.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/merge.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;
constexpr int kFewParts = 32;

// By value, the parts too where they are few: then nothing is sent, and the call can be captured.
struct StatesCall {
  kvc_backend_merge args;  // parts on the device; null: few
  kvc_backend_state few[kFewParts];
};

__device__ __forceinline__ float lse_of(const kvc_backend_state& state, int64_t token, int64_t head) {
  return state.lse[token * state.lse_token_stride + head * state.lse_head_stride];
}

// The result may be the first part: every lane has read a row's LSEs before one writes it.
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ StatesCall call) {
  const kvc_backend_merge& args = call.args;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  if (row >= args.num_tokens * args.num_heads) return;
  const int64_t token = row / args.num_heads, head = row % args.num_heads;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const Type type = type_of(args.result.out.dtype);
  FinalState final = {0.0, -INFINITY};
  // Dims in steps of a warp; all lanes take each step, the last ones for nothing.
  for (int32_t d_begin = 0; d_begin < args.dims; d_begin += kWarpSize) {
    const int32_t d = d_begin + lane;
    float o = 0.0f, m = -INFINITY, l = 0.0f;
    for (int32_t i = 0; i < args.num_parts; ++i) {
      const kvc_backend_state& part = args.parts != nullptr ? args.parts[i] : call.few[i];
      const float lse = lse_of(part, token, head);
      if (lse == -INFINITY) continue;
      float next = 0.0f;
      if (d < args.dims) {
        next =
            static_cast<const float*>(part.out.data)[token * part.out.token_stride + head * part.out.head_stride + d];
      }
      merge_state(&o, &m, &l, &next, lse, 1.0f, 1);
    }
    final = final_state(static_cast<double>(m), static_cast<double>(l), nullptr);
    if (d < args.dims) {
      store_element(type, args.result.out.data,
                    token * args.result.out.token_stride + head * args.result.out.head_stride + d,
                    o * static_cast<float>(final.scale));
    }
  }
  __syncwarp();
  if (args.result.lse != nullptr && lane == 0) {
    args.result.lse[token * args.result.lse_token_stride + head * args.result.lse_head_stride] = final.lse;
  }
}

}  // namespace

kvc_status merge(kvc_backend_device* opened, const kvc_backend_merge* args, void* stream, kvc_error* error) {
  const int64_t rows = args->num_tokens * args->num_heads;
  if (rows == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  StatesCall call = {*args, {}};
  const auto run = [&] {
    return launch("merge", stream, {blocks_for(rows, kWarps), 1, 1}, kThreads, 0, error, merge_kernel, call);
  };
  if (args->num_parts <= kFewParts) {
    call.args.parts = nullptr;
    memcpy(call.few, args->parts, static_cast<size_t>(args->num_parts) * sizeof(kvc_backend_state));
    return run();
  }
  Piece parts = piece_of(args->parts, args->num_parts);
  return with_upload(&device.upload, &parts, 1, stream, error, [&] {
    call.args.parts = on_device<const kvc_backend_state>(parts);
    return run();
  });
}

}  // namespace kvc::kernels::cuda

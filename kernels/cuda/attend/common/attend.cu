// attend: launches the kernels of a plan that is already on the device. Blocks of few rows and blocks of many rows are
// separate launches. The merge of tiles follows on the same stream, so it needs none of the counters by which CPU
// threads find the last item of a tile. Roofline: decode reads K and V once for each kv head and 16 rows.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/mma/launch.h"
#include "kernels/cuda/attend/simple/launch.h"
#include "kernels/cuda/attend/wgmma/launch.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

// kMergeBlocks: thread blocks for each tile; a warp merges one state at a time
constexpr int kMergeThreads = 128, kMergeBlocks = 8;

// The parameters of the merge. `plan` and `layer` of args are not read.
struct MergeCall {
  kvc_backend_attend args;
  kvc_backend_plan plan;  // its arrays are the device's
  int32_t group, dims;
  const int64_t* live_tiles;  // null: all tiles that are launched
};

// Merges element d of a state from the parts of a tile, from left to right. Gives m and l of the state.
__device__ float merged_element(const MergeCall& call, const kvc_backend_tile& tile, int64_t states, int64_t state,
                                int32_t d, float* m, float* l) {
  const int32_t parts = tile.part_end - tile.part_begin, own = tile.item_end - tile.item_begin;
  const kvc_backend_plan_arrays& plan = call.plan.arrays;
  const int64_t dims = call.dims;
  float o = 0.0f;
  *m = -INFINITY;
  *l = 0.0f;
  for (int32_t i = 0; i < parts + own; ++i) {
    const int64_t offset =
        i < parts ? plan.parts[tile.part_begin + i] : plan.items[tile.item_begin + i - parts].partial_offset;
    const float* part = call.plan.partials + offset;
    merge_state(&o, m, l, part + state * dims + d, part[states * dims + state], part[states * dims + states + state],
                1);
  }
  return o;
}

__global__ void __launch_bounds__(kMergeThreads) merge_tiles_kernel(const __grid_constant__ MergeCall call) {
  const kvc_backend_attend& args = call.args;
  const kvc_backend_plan_arrays& plan = call.plan.arrays;
  if (call.live_tiles != nullptr && blockIdx.x >= *call.live_tiles) return;
  const kvc_backend_tile tile = plan.tiles[blockIdx.x];
  if (tile.item_begin >= tile.item_end) return;                 // a plan made on the device has empty tiles
  const kvc_backend_item& first = plan.items[tile.item_begin];  // all items of a tile have the same queries and heads
  const int32_t heads = (first.head_end - first.head_begin) * call.group;
  const int32_t states = heads * (first.q_end - first.q_begin);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, warps = kMergeThreads / kWarpSize;
  const Type type = type_of(args.out.dtype);
  for (int32_t state = static_cast<int32_t>(blockIdx.y) * warps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
       state < states; state += kMergeBlocks * warps) {
    const int32_t token = plan.rows.token_begin[first.row] + first.q_begin + state / heads;
    const int32_t head = first.head_begin * call.group + state % heads;
    const float* sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const int64_t base = out_element(args, first.row, token, head);
    for (int32_t d = lane; d < call.dims; d += kWarpSize) {
      float m, l;
      const float o = merged_element(call, tile, states, state, d, &m, &l);
      const FinalState final = final_state(static_cast<double>(m), static_cast<double>(l), sink);
      store_element(type, args.out.data, base + d, o * static_cast<float>(final.scale));
      if (d == 0 && args.lse != nullptr) args.lse[lse_element(args, first.row, token, head)] = final.lse;
    }
  }
}

// Sets the units of scores as the CPU kernels do. Without options, scores stay unscaled, so a large score has no error
// but that of its dot product. The maximum of unscaled scores is right only for a positive scale, so the sign of the
// scale is multiplied into q.
void set_scales(AttendCall* call) {
  const kvc_backend_attend& args = call->args;
  const double scale = args.softmax_scale != 0.0 ? args.softmax_scale : static_cast<double>(call->layer.softmax_scale);
  call->q_sign = scale > 0.0 ? 1.0f : scale < 0.0 ? -1.0f : 0.0f;
  call->natural_scale = scale > 0.0 ? scale : scale < 0.0 ? -scale : 1.0;
  call->has_options = args.softcap != 0.0 || args.alibi_slopes != nullptr || has_bias(args.bias) ? 1 : 0;
  call->option_scale =
      static_cast<float>(args.softcap != 0.0 ? call->natural_scale / args.softcap : call->natural_scale);
  if (call->has_options != 0) call->natural_scale = 1.0;
  call->exp2_scale = static_cast<float>(call->natural_scale * 1.44269504088896340736);
}

// Launches the blocks of few rows, or of many. They use tensor cores where these can compute the call.
kvc_status launch_rows(const Device& device, AttendCall call, const BlockCut& cut, int64_t blocks, void* stream,
                       kvc_error* error) {
  if (blocks == 0) return KVC_OK;
  call.listed.row_blocks = row_blocks_of(call.layer.num_q_heads / call.layer.num_kv_heads, cut.rows);
  kvc_backend_attend host = call.args;
  host.layer = &call.layer;
  host.plan = &call.plan;
  const bool warpgroups = device.encode_map != nullptr && !has_lists(call);  // they read neighbouring keys
  if (warpgroups && cut.rows == kWideRows.rows && why_not_wgmma(host) == nullptr) {
    return launch_wgmma(device, call, blocks, stream, error);
  }
  if (warpgroups && why_not_wgmma_latent(host, cut) == nullptr) {
    return launch_wgmma_latent(device, call, cut, blocks, stream, error);
  }
  if (!device.simple && why_simple(host) == nullptr) {
    const MmaNeeds needs = needs_of(host);
    const int32_t most = cut.rows > kManyRows.rows ? kManyRows.rows : cut.rows;
    const int32_t rows = needs.folds ? rows_that_fold(call.layer) : most;
    MmaShape shape = mma_shape(device, call.layer, rows, needs);
    // in rounds of few rows
    if (shape.stages == 0 && !needs.folds) shape = mma_shape(device, call.layer, kFewRows.rows, needs);
    if (shape.stages > 0) return launch_mma(device, call, shape, blocks, stream, error);
  }
  return launch_simple(call, blocks, stream, error);
}

// staged: gives the blocks to launch. Null: `blocks` counts those of items that the device made.
kvc_status launch_kernels(const Device& device, AttendCall call, const kvc_backend_staged_plan* staged,
                          BlockCounts blocks, void* stream, kvc_error* error) {
  MergeCall merge = {call.args, call.plan, call.layer.num_q_heads / call.layer.num_kv_heads, call.layer.v_head_dim,
                     nullptr};
  const kvc_backend_staged_plan::Live* const live = staged != nullptr ? staged->live : nullptr;
  int64_t tiles = call.plan.num_tiles;
  if (live != nullptr) {  // a step of a graph is launched at its capacity
    call.live_blocks = &live->few;
    merge.live_tiles = &live->tiles;
    blocks = staged->most;
    tiles = staged->max_tiles;
  }
  kvc_status status = launch_rows(device, call, kFewRows, blocks.few, stream, error);
  if (call.blocks != nullptr) call.blocks += blocks.few;
  if (live != nullptr) call.live_blocks = &live->many;
  if (status == KVC_OK) status = launch_rows(device, call, device.many, blocks.many, stream, error);
  if (status != KVC_OK || tiles == 0) return status;
  return launch("merge of split items", stream, {static_cast<unsigned>(tiles), kMergeBlocks, 1}, kMergeThreads, 0,
                error, merge_tiles_kernel, merge);
}

// Counts the blocks of a plan that was made on the device, by its capacity.
kvc_status count_device_blocks(const AttendCall& call, BlockCounts* blocks, kvc_error* error) {
  const int64_t count =
      call.plan.num_items * call.layer.num_kv_heads * blocks_of_head(call.plan, call.layer, call.many_rows);
  if (count > INT32_MAX) {
    return fail(error, KVC_ERROR_BATCH_TOO_LARGE, "%lld thread blocks of attention", static_cast<long long>(count));
  }
  const bool few = rows_of_device_block(call.plan, call.layer, call.many_rows) == kFewRows.rows;
  *blocks = few ? BlockCounts{count, 0} : BlockCounts{0, count};
  return KVC_OK;
}

// Checks that the call can be enqueued: its plan is on the device, and a replay of its launches would be correct.
kvc_status check_staged(const kvc_backend_staged_plan* staged, void* stream, kvc_error* error) {
  if (staged == nullptr) return fail(error, KVC_ERROR_INVALID_ARGUMENT, "the plan of an attend was not staged");
  if (staged->live != nullptr) return KVC_OK;
  return check_not_captured(stream, "a call's plan is of this step alone", error);
}

}  // namespace

cudaError_t find_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&merge_tiles_kernel));
}

kvc_status attend(kvc_backend_device* opened, const kvc_backend_attend* args, void* stream, kvc_error* error) {
  if (args->cancel_host != nullptr && __atomic_load_n(args->cancel_host, __ATOMIC_RELAXED) != 0) {
    return fail(error, KVC_ERROR_CANCELLED, "attend was cancelled");
  }
  const kvc_backend_plan& plan = *args->plan;
  const kvc_backend_staged_plan* const staged = plan.device_item_queries > 0 ? nullptr : plan.staged;
  if (plan.num_items == 0 && (staged == nullptr || staged->live == nullptr)) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  AttendCall call = {};
  call.args = *args;
  call.args.cancel_host = nullptr;
  call.layer = *args->layer;
  call.plan = plan_on_device(plan);
  call.many_rows = device.many.rows;
  call.live_plan = staged != nullptr ? staged->live_plan : nullptr;
  set_scales(&call);
  BlockCounts blocks = {};
  kvc_status status;
  if (plan.device_item_queries > 0) {
    status = count_device_blocks(call, &blocks, error);
  } else {
    status = check_staged(staged, stream, error);
    if (status == KVC_OK) {
      blocks = staged->count;
      call.blocks = staged->blocks;
    }
  }
  if (status != KVC_OK || args->lists.block_tokens == 0) {
    return status == KVC_OK ? launch_kernels(device, call, staged, blocks, stream, error) : status;
  }
  void* memory = nullptr;
  status = list_keys(device, staged, call.layer.num_kv_heads, &call, stream, &memory, error);
  if (status == KVC_OK) status = launch_kernels(device, call, staged, blocks, stream, error);
  kvc_error unsaid = KVC_ERROR_INIT;
  const kvc_status given =
      memory == nullptr ? KVC_OK : device.scratch.give(memory, stream, status == KVC_OK ? error : &unsaid);
  return status == KVC_OK ? given : status;
}

}  // namespace kvc::kernels::cuda

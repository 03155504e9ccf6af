// attend: launches the kernels of a plan that is already on the device. Blocks of few rows and blocks of many rows
// (plan.h) are launched separately. Then a kernel merges the parts of each tile. The stream orders the merge after all
// items, so it needs no counters of finished items, unlike the CPU backend.
//
// Roofline: decode reads K and V once for each kv head and 16 rows.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/live_grid.h"
#include "kernels/cuda/attend/decode/launch.h"
#include "kernels/cuda/attend/mma/instructions.cuh"
#include "kernels/cuda/attend/mma/launch.h"
#include "kernels/cuda/attend/simple/launch.h"
#include "kernels/cuda/attend/wgmma/launch.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/staged_plan.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

// kMergeBlocks: the number of thread blocks for each tile. A warp merges one state at a time. kWeightParts: the number
// of parts whose weights a warp computes together.
constexpr int kMergeThreads = 128, kMergeBlocks = 16, kMergeWarps = kMergeThreads / kWarpSize;
constexpr int32_t kWeightParts = kWarpSize;

// The parameters of the merge. The kernel does not read `plan` and `layer` of args.
struct MergeCall {
  kvc_backend_attend args;
  kvc_backend_plan plan;  // its arrays are in device memory
  int32_t group, dims;
  const int64_t* live_tiles;  // in device memory; null: all launched tiles exist
};

// A part of a state, and its weights in the merge: the merged o becomes o * before + (o of this part) * own.
struct MergePart {
  const float* o;
  float m, l;
  float before, own;
};

struct MergeSums {
  float m, l;
};

// The place of part i of a tile among the partials. Parts of shared items come first, then those of the tile's own
// items.
__device__ __forceinline__ int64_t offset_of_part(const MergeCall& call, const kvc_backend_tile& tile, int32_t i) {
  const kvc_backend_plan_arrays& plan = call.plan.arrays;
  const int32_t shared = tile.part_end - tile.part_begin;
  return i < shared ? plan.parts[tile.part_begin + i] : plan.items[tile.item_begin + i - shared].partial_offset;
}

// Loads parts [begin, begin + kWeightParts) of a state, up to `end`, and computes their weights. Merges their m and l
// into *sums from left to right, as merge_state does. All lanes of a warp call it.
__device__ __forceinline__ void find_weights(const MergeCall& call, const kvc_backend_tile& tile, int64_t states,
                                             int64_t state, int32_t begin, int32_t end, MergePart* parts,
                                             MergeSums* sums) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, i = begin + lane;
  const int64_t dims = call.dims;
  __syncwarp();  // the previous parts are no longer read
  if (i < end) {
    const float* const part = call.plan.partials + offset_of_part(call, tile, i);
    parts[lane].o = part + state * dims;
    parts[lane].m = part[states * dims + state];
    parts[lane].l = part[states * dims + states + state];
  }
  __syncwarp();
  for (int32_t j = 0; j < kWeightParts && begin + j < end; ++j) {
    const float m = parts[j].m, l = parts[j].l;
    MergeWeights<float> weights = {sums->m, 1.0f, 0.0f};  // the weights of an empty part
    if (l != 0.0f && sums->l == 0.0f) {
      weights = {m, 0.0f, 1.0f};
      sums->l = l;
    } else if (l != 0.0f) {
      weights = merge_weights<float>(sums->m, m);
      sums->l = sums->l * weights.a + l * weights.b;
    }
    sums->m = weights.m;
    if (lane == 0) {
      parts[j].before = weights.a;
      parts[j].own = weights.b;
    }
  }
  __syncwarp();
}

// Merges kDims dims, from dim d on, of `count` parts into o.
template <int kDims>
__device__ __forceinline__ void add_parts(const MergePart* parts, int32_t count, int32_t d, float (&o)[kDims]) {
  constexpr int kAtOnce = 4;
  for (int32_t begin = 0; begin < count; begin += kAtOnce) {
    float next[kAtOnce][kDims] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= count) continue;
      memcpy(next[i], __builtin_assume_aligned(parts[begin + i].o + d, sizeof next[i]), sizeof next[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (begin + i >= count || parts[begin + i].own == 0.0f) continue;
      const float before = parts[begin + i].before, own = parts[begin + i].own;
#pragma unroll
      for (int k = 0; k < kDims; ++k) o[k] = o[k] * before + next[i][k] * own;
    }
  }
}

// Writes kDims dims of a result, from element `at` of `out` on.
template <int kDims>
__device__ __forceinline__ void store_result(const kvc_backend_tensor& out, int64_t at, const float (&x)[kDims]) {
  const Type type = type_of(out.dtype);
  if constexpr (kDims == 4) {
    unsigned char* const target = static_cast<unsigned char*>(out.data) + at * element_bytes(type);
    if (type == Type::kF32 && reinterpret_cast<uint64_t>(target) % 16 == 0) {
      memcpy(__builtin_assume_aligned(target, 16), x, sizeof x);
      return;
    }
    if (type != Type::kF32 && reinterpret_cast<uint64_t>(target) % 8 == 0) {
      uint32_t pairs[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float low = x[i * 2], high = x[i * 2 + 1];
        pairs[i] = type == Type::kF16 ? pack(F16{}, low, high) : pack(Bf16{}, low, high);
      }
      memcpy(__builtin_assume_aligned(target, 8), pairs, sizeof pairs);
      return;
    }
  }
#pragma unroll
  for (int k = 0; k < kDims; ++k) store_element(type, out.data, at + k, x[k]);
}

// Merges one state, and writes the result. A lane merges kDims dims at a time. parts: [kWeightParts], in shared memory
// of the warp.
template <int kDims>
__device__ __forceinline__ void merge_one_state(const MergeCall& call, const kvc_backend_tile& tile, int64_t states,
                                                int64_t state, const float* sink, int64_t out, MergePart* parts,
                                                float* lse) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t count = tile.part_end - tile.part_begin + tile.item_end - tile.item_begin;
  const auto weigh = [&](int32_t begin, MergeSums* sums) {
    find_weights(call, tile, states, state, begin, count, parts, sums);
  };
  MergeSums all = {-INFINITY, 0.0f};
  for (int32_t begin = 0; begin < count; begin += kWeightParts) weigh(begin, &all);
  const float scale = final_scale(all.m, all.l, sink);
  if (lane == 0 && lse != nullptr) *lse = final_lse(all.m, all.l, sink);
  for (int32_t first = 0; first < call.dims; first += kDims * kWarpSize) {
    const int32_t d = first + lane * kDims;
    float o[kDims] = {};
    MergeSums sums = {-INFINITY, 0.0f};
    for (int32_t begin = 0; begin < count; begin += kWeightParts) {
      if (count > kWeightParts) weigh(begin, &sums);
      if (d < call.dims) add_parts(parts, count - begin < kWeightParts ? count - begin : kWeightParts, d, o);
    }
    if (d >= call.dims) continue;
#pragma unroll
    for (float& x : o) x *= scale;
    store_result(call.args.out, out + d, o);
  }
}

// Whether all parts of a tile can be read four floats at a time. All lanes of a warp call it.
__device__ __forceinline__ bool comes_in_fours(const MergeCall& call, const kvc_backend_tile& tile) {
  const int32_t shared = tile.part_end - tile.part_begin, count = shared + tile.item_end - tile.item_begin;
  uint64_t places = static_cast<uint64_t>(call.dims) * sizeof(float) | reinterpret_cast<uint64_t>(call.plan.partials);
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % kWarpSize; i < count; i += kWarpSize) {
    places |= static_cast<uint64_t>(offset_of_part(call, tile, i)) * sizeof(float);
  }
  return __ballot_sync(kAllLanes, places % 16 != 0) == 0;
}

// Merges the parts of a tile. The thread blocks of a column of the grid share the states of the tile.
__device__ __forceinline__ void merge_tile(const MergeCall& call, const kvc_backend_tile& tile, MergePart* parts) {
  const kvc_backend_attend& args = call.args;
  const kvc_backend_plan_arrays& plan = call.plan.arrays;
  if (tile.item_begin >= tile.item_end) return;                 // an unused tile of a plan that the device made
  const kvc_backend_item& first = plan.items[tile.item_begin];  // all items of a tile have the same queries and heads
  const int32_t heads = (first.head_end - first.head_begin) * call.group;
  const int32_t states = heads * (first.q_end - first.q_begin);
  const bool fours = comes_in_fours(call, tile);
  wait_for_previous();  // until here, only the plan was read, and attention kernels do not write it
  for (int32_t state = static_cast<int32_t>(blockIdx.y) * kMergeWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
       state < states; state += kMergeBlocks * kMergeWarps) {
    const int32_t token = plan.rows.token_begin[first.row] + first.q_begin + state / heads;
    const int32_t head = first.head_begin * call.group + state % heads;
    const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const int64_t out = out_element(args, first.row, token, head);
    float* const lse = args.lse == nullptr ? nullptr : args.lse + lse_element(args, first.row, token, head);
    if (fours) {
      merge_one_state<4>(call, tile, states, state, sink, out, parts, lse);
    } else {
      merge_one_state<1>(call, tile, states, state, sink, out, parts, lse);
    }
  }
}

// The second launch bound lets a thread use as many registers as four blocks on a multiprocessor allow. Without this
// bound, ptxas plans for more blocks on some GPUs, and spills registers. In a step of a graph, the grid may have fewer
// columns than the plan has tiles (live_grid.h).
__global__ void __launch_bounds__(kMergeThreads, 4) merge_tiles_kernel(const __grid_constant__ MergeCall call) {
  MergePart* const parts = reinterpret_cast<MergePart*>(shared_bytes()) + threadIdx.x / kWarpSize * kWeightParts;
  const int64_t tiles = call.live_tiles != nullptr ? *call.live_tiles : static_cast<int64_t>(gridDim.x);
  for (int64_t i = blockIdx.x; i < tiles; i += gridDim.x) merge_tile(call, call.plan.arrays.tiles[i], parts);
  wait_for_previous();
}

// Enqueues the merge of `tiles` tiles. starts_early: the merge may start before the attention has ended.
kvc_status launch_merge(const Device& device, const MergeCall& call, int64_t tiles, bool starts_early, void* stream,
                        kvc_error* error) {
  constexpr int64_t kShared = kMergeWarps * kWeightParts * sizeof(MergePart);
  int64_t blocks = tiles * kMergeBlocks;
  const kvc_status status = cap_blocks(device, call.live_tiles, reinterpret_cast<const void*>(&merge_tiles_kernel),
                                       kMergeThreads, kShared, &blocks, error);
  if (status != KVC_OK) return status;
  const int64_t columns = blocks > kMergeBlocks ? blocks / kMergeBlocks : 1;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = {static_cast<unsigned>(columns), kMergeBlocks, 1};
  config.blockDim = {kMergeThreads, 1, 1};
  config.dynamicSmemBytes = kShared;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = starts_early ? 1 : 0;
  return launch("merge of split items", config, error, merge_tiles_kernel, call);
}

// Sets the units of scores, as the CPU kernels do. Without options (softcap, ALiBi, biases), m is the largest dot
// product, because a multiplication by the scale would add a rounding error to large scores. The largest dot product is
// the largest score only if the scale is positive. So q is multiplied by the sign of the scale.
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

// Launches the blocks of few rows, or the blocks of many rows. Tensor cores are used if they can compute the call.
kvc_status launch_rows(const Device& device, AttendCall call, const BlockCut& cut, int64_t blocks, void* stream,
                       kvc_error* error) {
  if (blocks == 0) return KVC_OK;
  call.listed.row_blocks = row_blocks_of(call.layer.num_q_heads / call.layer.num_kv_heads, cut.rows);
  kvc_backend_attend host = call.args;
  host.layer = &call.layer;
  host.plan = &call.plan;
  // The decode kernel and the warpgroup kernel of separate K and V read neighbouring keys, so they cannot compute a
  // call with lists.
  const bool neighbours = !has_lists(call), tensor_cores = !device.simple && why_simple(host) == nullptr;
  if (tensor_cores && neighbours && cut.rows == kFewRows.rows && why_not_decode(host) == nullptr) {
    const DecodeShape shape = shape_of_decode(device, call);
    if (shape.stages > 0) return launch_decode(device, call, shape, blocks, stream, error);
  }
  const bool warpgroups = device.encode_map != nullptr;
  if (warpgroups && neighbours && cut.rows == kWideRows.rows && why_not_wgmma(host) == nullptr) {
    return launch_wgmma(device, call, blocks, stream, error);
  }
  if (warpgroups && why_not_wgmma_latent(host, cut) == nullptr) {
    return launch_wgmma_latent(device, call, cut, blocks, stream, error);
  }
  if (tensor_cores) {
    const MmaNeeds needs = needs_of(host);
    const int32_t most = cut.rows > kManyRows.rows ? kManyRows.rows : cut.rows;
    const int32_t rows = rows_of_mma_block(call.layer, needs, most);
    MmaShape shape = mma_shape(device, call.layer, rows, needs);
    // If many rows do not fit in shared memory, the kernel of few rows computes the blocks, 16 rows at a time.
    if (shape.stages == 0 && !needs.folds) shape = mma_shape(device, call.layer, kFewRows.rows, needs);
    if (shape.stages > 0) return launch_mma(device, call, shape, blocks, stream, error);
  }
  return launch_simple(call, blocks, stream, error);
}

// staged: null if the device made the items. blocks: the numbers of blocks of few and of many rows.
kvc_status launch_kernels(const Device& device, AttendCall call, const kvc_backend_staged_plan* staged,
                          BlockCounts blocks, void* stream, kvc_error* error) {
  MergeCall merge = {call.args, call.plan, call.layer.num_q_heads / call.layer.num_kv_heads, call.layer.v_head_dim,
                     nullptr};
  const kvc_backend_staged_plan::Live* const live = staged != nullptr ? staged->live : nullptr;
  int64_t tiles = call.plan.num_tiles;
  if (live != nullptr) {  // a step of a graph is launched for its capacity
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
  // Only the merge of a call that cannot be captured starts early, because a capture of such a launch needs functions
  // of a recent driver.
  const bool starts_early = device.has_early_start && staged != nullptr && live == nullptr;
  return launch_merge(device, merge, tiles, starts_early, stream, error);
}

// Counts the blocks of a plan that the device made, by its capacity.
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

// Checks that the plan is on the device, and that a replay of the call would be correct if the stream is being
// captured.
kvc_status check_staged(const kvc_backend_staged_plan* staged, void* stream, kvc_error* error) {
  if (staged == nullptr) return fail(error, KVC_ERROR_INVALID_ARGUMENT, "the plan of an attend was not staged");
  if (staged->live != nullptr) return KVC_OK;
  return check_not_captured(stream, "a call's plan is valid in this step only", error);
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

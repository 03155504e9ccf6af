// attend: one kernel over all blocks of all items, and behind it the merge of tiles on the same stream. (A stream's
// order stands for the counters by which threads of a CPU find the item of a tile that finishes last.)
// Roofline: decode reads K and V once a kv head and 16 rows; o, q and the softmax are float32 on the CUDA cores.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attend/common/arrays.h"
#include "kernels/cuda/attend/mma/launch.h"
#include "kernels/cuda/attend/simple/kernel.cuh"
#include "kernels/cuda/attend/wgmma/launch.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kMergeThreads = 128, kMergeBlocks = 8;  // blocks of a tile; a warp takes a state at a time

// What the merge is launched with. The structs that args points to: see AttendCall.
struct MergeCall {
  kvc_backend_attend args;
  int32_t group, dims;
  const int32_t* token_begin;
  const int64_t* live_tiles;  // null: as many as are launched
};

// Element d of a state merged from the parts of a tile, left to right; m and l of the state.
__device__ float merged_element(const MergeCall& call, const kvc_backend_tile& tile, int64_t states, int64_t state,
                                int32_t d, float* m, float* l) {
  const int32_t parts = tile.part_end - tile.part_begin, own = tile.item_end - tile.item_begin;
  const int64_t dims = call.dims;
  float o = 0.0f;
  *m = -INFINITY;
  *l = 0.0f;
  for (int32_t i = 0; i < parts + own; ++i) {
    const int64_t offset =
        i < parts ? call.args.parts[tile.part_begin + i] : call.args.items[tile.item_begin + i - parts].partial_offset;
    const float* part = call.args.partials + offset;
    merge_state(&o, m, l, part + state * dims + d, part[states * dims + state], part[states * dims + states + state],
                1);
  }
  return o;
}

__global__ void __launch_bounds__(kMergeThreads) merge_tiles_kernel(const __grid_constant__ MergeCall call) {
  const kvc_backend_attend& args = call.args;
  if (call.live_tiles != nullptr && blockIdx.x >= *call.live_tiles) return;
  const kvc_backend_tile tile = args.tiles[blockIdx.x];
  if (tile.item_begin >= tile.item_end) return;                 // of the device's: nothing to merge
  const kvc_backend_item& first = args.items[tile.item_begin];  // all items of a tile have its queries and heads
  const int32_t heads = (first.head_end - first.head_begin) * call.group;
  const int32_t states = heads * (first.q_end - first.q_begin);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, warps = kMergeThreads / kWarpSize;
  const Type type = type_of(args.out.dtype);
  for (int32_t state = static_cast<int32_t>(blockIdx.y) * warps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
       state < states; state += kMergeBlocks * warps) {
    const int32_t token = call.token_begin[first.row] + first.q_begin + state / heads;
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

// Score units as the CPU kernels have them: unscaled where there are no options, so that large scores lose nothing but
// what the dot product lost; the largest one needs a positive scale.
void set_scales(AttendCall* call) {
  const kvc_backend_attend& args = call->args;
  const double scale = args.softmax_scale != 0.0 ? args.softmax_scale : static_cast<double>(call->layer.softmax_scale);
  call->q_sign = scale > 0.0 ? 1.0f : scale < 0.0 ? -1.0f : 0.0f;
  call->natural_scale = scale > 0.0 ? scale : scale < 0.0 ? -scale : 1.0;
  call->has_options = args.softcap != 0.0 || args.alibi_slopes != nullptr ? 1 : 0;
  call->option_scale =
      static_cast<float>(args.softcap != 0.0 ? call->natural_scale / args.softcap : call->natural_scale);
  if (call->has_options != 0) call->natural_scale = 1.0;
  call->exp2_scale = static_cast<float>(call->natural_scale * 1.44269504088896340736);
}

kvc_status launch_attend(const AttendCall& call, int64_t blocks, void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  const int64_t shared = static_cast<int64_t>(sizeof(Fixed)) +
                         4 * block_floats(call.num_rows, layer.head_dim, layer.v_head_dim, call.args.fold_keys > 0);
  const auto run = [&](auto kernel) {
    return launch("attend", stream, {static_cast<unsigned>(blocks), 1, 1}, kAttendThreads, static_cast<size_t>(shared),
                  error, kernel, call);
  };
  switch (type_of(layer.dtype)) {
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
    default:
      return run(attend_kernel<Bf16>);
  }
}

// The call as the device reads it.
void point_to_device(const Piece* pieces, AttendCall* call) {
  kvc_backend_attend& args = call->args;
  args.items = on_device<const kvc_backend_item>(pieces[kItems]);
  args.tiles = on_device<const kvc_backend_tile>(pieces[kTiles]);
  args.spans = on_device<const kvc_backend_span>(pieces[kSpans]);
  args.parts = on_device<const int64_t>(pieces[kParts]);
  args.key_sets = on_device<const int32_t>(pieces[kKeySets]);
  args.tile_counters = nullptr;
  args.cancel_host = nullptr;
  kvc_backend_rows& rows = call->rows;
  rows.token_begin = on_device<const int32_t>(pieces[kTokenBegin]);
  rows.kv_lengths = on_device<const int32_t>(pieces[kLengths]);
  rows.positions = on_device<const int32_t>(pieces[kPositions]);
  rows.key_ends = on_device<const int32_t>(pieces[kKeyEnds]);
  rows.stream_sinks = on_device<const int32_t>(pieces[kStreamSinks]);
  rows.stream_windows = on_device<const int32_t>(pieces[kStreamWindows]);
  rows.tree_begin = on_device<const int32_t>(pieces[kTreeBegin]);
  rows.tree_offset = on_device<const int32_t>(pieces[kTreeOffset]);
  rows.tree_nodes = on_device<const kvc_backend_tree_node>(pieces[kTreeNodes]);
  rows.key_begins = on_device<const int32_t>(pieces[kKeyBegins]);
  call->tables = {};
  call->tables.nodes = mirrored_nodes(args);
  call->tables.roots = on_device<const int32_t>(pieces[kRoots]);
  call->tables.levels = on_device<const int32_t>(pieces[kLevels]);
  call->tables.pages = on_device<const int32_t>(pieces[kPages]);
  call->tables.page_begin = on_device<const int64_t>(pieces[kPageBegin]);
  call->blocks = on_device<const AttendBlock>(pieces[kBlocks]);
}

// Blocks of few rows, or of many, by tensor cores where they can.
kvc_status launch_rows(const Device& device, const AttendCall& call, const BlockCut& cut, int64_t blocks, void* stream,
                       kvc_error* error) {
  if (blocks == 0) return KVC_OK;
  kvc_backend_attend host = call.args;
  host.layer = &call.layer;
  if (device.encode_map != nullptr && cut.rows == kWideRows.rows && why_not_wgmma(host) == nullptr) {
    return launch_wgmma(device, call, blocks, stream, error);
  }
  if (device.encode_map != nullptr && why_not_wgmma_latent(host, cut) == nullptr) {
    return launch_wgmma_latent(device, call, cut, blocks, stream, error);
  }
  if (!device.simple && why_simple(host) == nullptr) {
    const MmaNeeds needs = needs_of(host);
    const int32_t most = cut.rows > kManyRows.rows ? kManyRows.rows : cut.rows;
    const int32_t rows = needs.folds ? rows_that_fold(call.layer) : most;
    MmaShape shape = mma_shape(device, call.layer, rows, needs);
    if (shape.stages == 0 && !needs.folds) shape = mma_shape(device, call.layer, kFewRows.rows, needs);  // in rounds
    if (shape.stages > 0) return launch_mma(device, call, shape, blocks, stream, error);
  }
  return launch_attend(call, blocks, stream, error);
}

kvc_status launch_kernels(const Device& device, AttendCall call, const Made& made, void* stream, kvc_error* error) {
  MergeCall merge = {call.args, call.layer.num_q_heads / call.layer.num_kv_heads, call.layer.v_head_dim,
                     call.rows.token_begin, nullptr};
  BlockCounts blocks = made.blocks;
  int64_t tiles = call.args.num_tiles, many_at = made.blocks.few;
  if (made.staged != nullptr && made.staged->live != nullptr) {  // a step of a graph: at its capacity
    call.staged_rows = made.staged->rows_on_device;
    call.live_blocks = &made.staged->live->few;
    merge.live_tiles = &made.staged->live->tiles;
    blocks = made.staged->most;
    tiles = made.staged->max_tiles;
    many_at = blocks.few;
  }
  kvc_status status = launch_rows(device, call, kFewRows, blocks.few, stream, error);
  if (call.blocks != nullptr) call.blocks += many_at;
  if (call.live_blocks != nullptr) call.live_blocks = &made.staged->live->many;
  if (status == KVC_OK) status = launch_rows(device, call, device.many, blocks.many, stream, error);
  if (status != KVC_OK || tiles == 0) return status;
  return launch("merge of split items", stream, {static_cast<unsigned>(tiles), kMergeBlocks, 1}, kMergeThreads, 0,
                error, merge_tiles_kernel, merge);
}

// Items, rows and page lists are on the device: nothing is read, nothing is uploaded.
kvc_status attend_on_device(const Device& device, AttendCall* call, void* stream, kvc_error* error) {
  call->tables = *call->args.tables;
  call->args.tile_counters = nullptr;
  call->args.cancel_host = nullptr;
  const int64_t blocks =
      call->args.num_items * call->layer.num_kv_heads * blocks_of_head(call->args, call->layer, call->many_rows);
  if (blocks > INT32_MAX) {
    return fail(error, KVC_ERROR_BATCH_TOO_LARGE, "%lld thread blocks of attention", static_cast<long long>(blocks));
  }
  Made made;
  const bool few = rows_of_device_block(call->args, call->layer, call->many_rows) == kFewRows.rows;
  made.blocks = few ? BlockCounts{blocks, 0} : BlockCounts{0, blocks};
  return launch_kernels(device, *call, made, stream, error);
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
  if (args->num_items == 0 && max_tokens_of(args->step) == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  kvc_status status = check_replayable(args->step, stream, error);
  if (status != KVC_OK) return status;
  AttendCall call = {};
  call.args = *args;
  call.layer = *args->layer;
  call.rows = *args->rows;
  set_scales(&call);
  call.many_rows = device.many.rows;
  constexpr int64_t kFloats = (kMaxSharedBytes - static_cast<int64_t>(sizeof(Fixed))) / 4;
  call.num_rows = rows_of_block(kFloats, call.layer.head_dim, call.layer.v_head_dim, args->fold_keys > 0);
  if (args->device_item_queries > 0) return attend_on_device(device, &call, stream, error);

  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  Piece pieces[kNumPieces];
  Made made;
  status = find_arrays(*args, device.many, &device.upload, pieces, &made, error);
  if (status == KVC_OK) status = device.upload.take(pieces, kNumPieces, stream, error);
  if (status != KVC_OK) return status;
  write_made(*args, device.many, made, pieces);
  point_to_device(pieces, &call);
  status = device.upload.send(stream, error);
  if (status == KVC_OK) status = launch_kernels(device, call, made, stream, error);
  const kvc_status finished = device.upload.finish(stream, error);
  return status != KVC_OK ? status : finished;
}

}  // namespace kvc::kernels::cuda

// The parameters of attention kernels, and the first part of each kernel: it finds the work of a thread block, the
// masks and places of the block's rows, and the keys that these rows see. In a call with lists (attend/common/lists.h),
// a key is a place in a list.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/alibi.h"
#include "kernels/common/bias.h"
#include "kernels/common/mask.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/lists.h"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/warp.cuh"
#include "kvcache_backend.h"

namespace kvc::kernels::cuda {

// The threads of a block of the simple kernel. Blocks of attend_mma_kernel have the same number.
constexpr int kAttendThreads = 128;

// The parameters of a kernel, passed by value. point_to_call sets `plan` and `layer` of a copy of args on the device.
// The host sets the rest.
struct AttendCall {
  kvc_backend_attend args;
  kvc_backend_layer layer;
  kvc_backend_plan plan;  // its arrays are in device memory
  // In device memory: read in place of `plan` by a call that later steps may replay. Else null.
  const kvc_backend_plan* live_plan;
  const AttendBlock* blocks;   // null: the device made the items (device_block)
  const int64_t* live_blocks;  // in device memory: the number of blocks that have work; null: all blocks of the grid
  int32_t many_rows;           // the largest number of rows of a block of many rows: kManyRows.rows or kWideRows.rows
  // The sign of the softmax scale, or 0. q is multiplied by q_sign, so that the largest dot product gives the largest
  // score.
  float q_sign;
  double natural_scale;  // a score times this is in natural-log units
  float exp2_scale;      // p = 2^((score - m) * exp2_scale)
  float option_scale;    // with softcap, ALiBi or biases: the factor of dot products before these options
  int32_t has_options;
  ListedKeys listed;
};

KVC_HOST_DEVICE bool has_lists(const AttendCall& call) { return call.listed.counts != nullptr; }

// A maximum in natural-log units, rounded to float32. l and o are multiplied by `correction`, which corrects the
// rounding.
struct NaturalMaximum {
  float m, correction;
};

__device__ __forceinline__ NaturalMaximum natural_maximum(const AttendCall& call, float m, float l) {
  if (l == 0.0f) return {-INFINITY, 0.0f};
  const double exact = static_cast<double>(m) * call.natural_scale;
  NaturalMaximum natural;
  natural.m = static_cast<float>(exact);
  natural.correction = expf(static_cast<float>(exact - static_cast<double>(natural.m)));
  return natural;
}

// The plan of the current step.
__device__ __forceinline__ const kvc_backend_plan* plan_of(const AttendCall& call) {
  return call.live_plan != nullptr ? call.live_plan : &call.plan;
}

// Returns block `index` of the call.
__device__ __forceinline__ AttendBlock block_at(const AttendCall& call, int64_t index) {
  return call.blocks != nullptr ? call.blocks[index] : device_block(call.plan, call.layer, call.many_rows, index);
}

// The number of blocks of the call. In a step of a graph, the grid may be smaller. Then a thread block computes the
// blocks blockIdx.x, blockIdx.x + gridDim.x, and so on.
__device__ __forceinline__ int64_t count_blocks(const AttendCall& call) {
  return call.live_blocks != nullptr ? *call.live_blocks : static_cast<int64_t>(gridDim.x);
}

// Finds block `index` of the call; index < count_blocks. Returns false if the thread block has no work. If gridDim.y is
// above 1, blockIdx.y selects a part of the block: half of a block of kWideRows, or, in a call with lists, rows of one
// query.
__device__ __forceinline__ bool find_block(const AttendCall& call, int64_t index, AttendBlock* block) {
  *block = block_at(call, index);
  if (has_lists(call)) {
    find_listed_rows(call.layer.num_q_heads / call.layer.num_kv_heads, static_cast<int32_t>(blockIdx.y),
                     &block->row_begin, &block->row_end);
  } else if (gridDim.y > 1) {
    block->row_begin += static_cast<int32_t>(blockIdx.y) * kManyRows.rows;
    if (block->row_end > block->row_begin + kManyRows.rows) block->row_end = block->row_begin + kManyRows.rows;
  }
  return block->row_begin < block->row_end;
}
// For kernels whose grid has one thread block for each block of the call.
__device__ __forceinline__ bool find_block(const AttendCall& call, AttendBlock* block) {
  return blockIdx.x < count_blocks(call) && find_block(call, blockIdx.x, block);
}

// Sets fixed->args, which the rules of kernels/common read, and the tree of the item's row. A call with lists gets no
// tree, because its lists have only keys that the tree does not hide. One thread calls it. AnyFixed: the fixed shared
// memory of any kernel.
template <class AnyFixed>
__device__ __forceinline__ void point_to_call(const AttendCall& call, const kvc_backend_item& item, AnyFixed* fixed) {
  fixed->args = call.args;
  fixed->args.layer = &call.layer;
  fixed->args.plan = plan_of(call);
  fixed->tree = KeyTree{INT32_MAX, nullptr};
  if (!is_shared(&item) && !has_lists(call)) fixed->tree = tree_of_row(&plan_of(call)->arrays.rows, item.row);
}

// The factor by which scores of a row of the batch with a kv head are multiplied.
__device__ __forceinline__ float unit_of_row(const AttendCall& call, int32_t row, int32_t head) {
  return head_scale(&call.layer.k_scales, head) *
         (row_factor(&call.args.q_scales, row, head) * row_factor(&call.args.k_scales, row, head));
}

// Finds the place, the mask and the scale of row r of the block. Call point_to_call first.
template <class AnyFixed>
__device__ __forceinline__ void find_row(const AttendCall& call, const kvc_backend_item& item, const AttendBlock& block,
                                         int32_t group, int32_t r, AnyFixed* fixed) {
  QueryCursor cursor = query_cursor(&fixed->args, &item);
  const QueryPlace place = place_of_query(&cursor, (block.row_begin + r) / group);
  fixed->places[r] = place;
  fixed->masks[r] = query_mask(&fixed->args, &item, place.row, place.query);
  if (has_lists(call)) {
    const KeyRange all = {0, call.listed.counts[list_of(call.listed, item.part, place.token, block.head)]};
    fixed->masks[r].keys = intersect(all, KeyRange{item.key_begin, item.key_end});
  }
  fixed->units[r] = unit_of_row(call, place.row, block.head);
}

// A key of a call with lists. page, slot: the page of the key's rows, and their slot within the page. index, position:
// 0 if the call does not need them.
struct ListedKey {
  int64_t page, slot;
  int32_t index, position;
};

// Returns the key at place `at` of a query's list; `at` is below the length of the list. place: the place of any row of
// the query.
__device__ __forceinline__ ListedKey listed_key(const AttendCall& call, const kvc_backend_item& item,
                                                const QueryPlace& place, int32_t head, int32_t at) {
  const int64_t entry = list_of(call.listed, item.part, place.token, head) * call.listed.most + at;
  const uint32_t slot = call.listed.slots[entry], page_size = static_cast<uint32_t>(call.layer.page_size);
  ListedKey key = {slot / page_size, slot % page_size, 0, 0};
  if (call.listed.keys == nullptr) return key;
  key.index = call.listed.keys[entry];
  const KeyTree tree = tree_of_row(&plan_of(call)->arrays.rows, item.row);
  key.position = key_position(&tree, key.index);
  return key;
}

// Finds two ranges, from the masks of the rows. [keys_begin, keys_end) has all keys that any row sees. All rows see all
// keys in [full_begin, full_end). All lanes of a warp call it. No bound is negative, so the minimum of unsigned x is
// ~y, where y is the maximum of ~x.
template <class RowsFixed>
__device__ __forceinline__ void find_key_bounds(RowsFixed* fixed, int32_t rows, int32_t lane) {
  uint32_t not_begin = 0, end = 0, last_begin = 0, not_first_end = ~static_cast<uint32_t>(fixed->tree.begin);
  for (int32_t r = lane; r < rows; r += kWarpSize) {
    const KeyRange keys = fixed->masks[r].keys;
    const uint32_t key_begin = static_cast<uint32_t>(keys.begin), key_end = static_cast<uint32_t>(keys.end);
    if (key_begin < key_end && ~key_begin > not_begin) not_begin = ~key_begin;
    if (key_begin < key_end && key_end > end) end = key_end;
    if (key_begin > last_begin) last_begin = key_begin;
    if (~key_end > not_first_end) not_first_end = ~key_end;
  }
  not_begin = warp_max(not_begin);
  end = warp_max(end);
  last_begin = warp_max(last_begin);
  not_first_end = warp_max(not_first_end);
  if (lane != 0) return;
  fixed->keys_begin = ~not_begin;
  fixed->keys_end = end;
  fixed->full_begin = last_begin;
  fixed->full_end = ~not_first_end;
}

}  // namespace kvc::kernels::cuda

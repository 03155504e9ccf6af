// Functions of both kernels that score keys (scores.cu, tile_scores.cuh). They find the keys of a list, and read stored
// keys, scales and weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/page_walk.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/select/call.cuh"

namespace kvc::kernels::cuda {

struct KeyPlace {
  int64_t row;  // byte offset of the key's row in the pool, for head 0
  int32_t page;
  int32_t slot;  // -1: the query does not see the key
};

// The query heads [begin, end) that score a list: all heads, or the head of the list.
struct Heads {
  int32_t begin, end;
};

// A key whose place is being loaded from memory.
struct KeyLoad {
  int32_t value;  // the page; with lists, page * page_size + slot
  int32_t slot;   // the slot in the page; with lists, 0; -1: the query does not see the key
};

// Begins to find key number `at` of a list. The result is loaded from memory, and this load may still be in flight.
// pages: the page list of the token's row.
__device__ __forceinline__ KeyLoad begin_find(const SelectCall& call, const SeenKeys& seen, PageCursor* pages,
                                              int32_t token, int32_t list, int32_t at) {
  const kvc_backend_layer& layer = call.attend.layer;
  if (has_lists(call.attend)) {
    const ListedKeys& listed = call.attend.listed;
    return {static_cast<int32_t>(listed.slots[list_of(listed, 0, token, list) * listed.most + at]), 0};
  }
  const int32_t key = seen.keys.begin + at;
  if (key >= seen.tree.begin && !sees_node(&seen.tree, &seen.mask, key)) return {0, -1};
  return {page_at(pages, key / layer.page_size), key % layer.page_size};
}

// Returns the place of a key that begin_find found. If the query does not see the key, `row` of the place is 0.
__device__ __forceinline__ KeyPlace end_find(const SelectCall& call, const KeyLoad& load) {
  const kvc_backend_layer& layer = call.attend.layer;
  KeyPlace place = {0, load.value, load.slot};
  if (load.slot < 0) return place;
  if (has_lists(call.attend)) {
    const auto index = static_cast<uint32_t>(load.value), size = static_cast<uint32_t>(layer.page_size);
    place.page = static_cast<int32_t>(index / size);
    place.slot = static_cast<int32_t>(index % size);
  }
  place.row = place.page * layer.k.page_stride_bytes + place.slot * layer.k.slot_stride_bytes;
  return place;
}

__device__ __forceinline__ const unsigned char* key_row(const kvc_backend_layer& layer, const KeyPlace& place,
                                                        int32_t kv_head) {
  return static_cast<const unsigned char*>(layer.k.data) + place.row + kv_head * layer.k.head_stride_bytes;
}

// Returns the address of the scales of a key's block row.
__device__ __forceinline__ const unsigned char* key_scales(const SelectCall& call, const unsigned char* row,
                                                           const KeyPlace& place, int32_t kv_head) {
  return scales_of_row(call.block, row, token_scale(&call.attend.layer.k_scales, place.page, kv_head, place.slot));
}

// Returns element d of a stored key, without the scale of its row or head. zero: the zero point of a row of uint4; 0
// for other rows. scales: the result of key_scales; not read if rows are no block rows.
__device__ __forceinline__ float key_element(const SelectCall& call, const unsigned char* row,
                                             const unsigned char* scales, float zero, int32_t d) {
  const kvc_backend_layer& layer = call.attend.layer;
  if (has_block_rows(layer.format)) {
    return call.has_one_scale != 0 ? load_element(call.block.element, row, d)
                                   : load_of_block_row(call.block, row, scales, d);
  }
  const Type stored = stored_type(layer);
  const float x = load_element(stored, row, d);
  if (stored != Type::kE2m1) return x - zero;
  return x * block_scale(row[block_scales_at(layer, layer.head_dim) + d / kernels::kBlockDims]);
}

// Returns the factor by which a dot product with a stored key is multiplied: the scale of the key's row or head.
__device__ __forceinline__ float unit_of(const SelectCall& call, const KeyPlace& place, int32_t kv_head) {
  const kvc_backend_layer& layer = call.attend.layer;
  if (has_block_rows(layer.format)) {
    if (call.has_one_scale == 0) return 1.0f;
    return scale_of_dim(call.block, key_scales(call, key_row(layer, place, kv_head), place, kv_head), 0);
  }
  if (!has_token_scales(&layer.k_scales)) return head_scale(&layer.k_scales, kv_head);
  const float scale = *token_scale(&layer.k_scales, place.page, kv_head, place.slot);
  return has_rotated_rows(layer.format) ? without_zero_point(scale) : scale;
}

__device__ __forceinline__ float weight_of(const SelectCall& call, int32_t token, int32_t head) {
  const kvc_backend_select& select = call.select;
  if (select.weights == nullptr) return 1.0f;
  return select.weights[token * select.weights_token_stride + head * select.weights_head_stride];
}

__device__ __forceinline__ QueryPlace place_of(const SeenKeys& seen, int32_t token) {
  QueryPlace place = {};
  place.row = seen.item.row;
  place.query = seen.query;
  place.token = token;
  return place;
}

// Calls score(list, heads, first, count) for the lists of this launch. score() must compute the scores of `count` keys
// of the list, from key number `first` on, for the query heads `heads`. One call scores all lists that share their
// candidates, or that have no candidates. keys: the number of keys that a thread block scores.
template <class Score>
__device__ __forceinline__ void for_each_list(const SelectCall& call, const SeenKeys& seen, int32_t token, int32_t keys,
                                              Score score) {
  const bool sums = call.select.rule == KVC_SELECT_RELU_SUM;
  const bool apart = !sums && has_lists(call.attend) && call.attend.listed.heads > 1;
  const int32_t first = static_cast<int32_t>(blockIdx.x) * keys;
  for (int32_t list = call.list_begin; list < call.list_end; list = apart ? list + 1 : call.list_end) {
    const int32_t left = keys_of(call, seen, token, list) - first, count = left < keys ? left : keys;
    if (count <= 0) continue;
    const Heads heads = sums    ? Heads{0, call.attend.layer.num_q_heads}
                        : apart ? Heads{list, list + 1}
                                : Heads{call.list_begin, call.list_end};
    score(list, heads, first, count);
  }
}

}  // namespace kvc::kernels::cuda

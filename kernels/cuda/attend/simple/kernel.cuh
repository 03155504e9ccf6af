// Attention on the CUDA cores, for all shapes and types. A thread block computes rows of one kv head over the keys of
// an item, up to 16 rows at a time. A row is a pair of a query and a query head. All arithmetic is float32.
//
// The block processes 32 keys at a time, one for each lane. It finds the addresses of the keys, and copies K to shared
// memory as float32, 64 dims at a time. The scales of tokens and heads are not applied to K, but to the dot products.
// Each warp computes the scores of every fourth row, and then updates the online softmax of these rows. V is copied in
// the same way. P V is added to o, which stays in shared memory. Whether a row sees a key is decided once for each
// pair, by kernels/common/mask.h and the mask of the call. Biases are read for each score.
//
// If rows are stored rotated (kernels/common/hadamard.h), q is rotated in the same way when it is loaded, and the
// rotation of o is undone when o is written. If keys are also rotated by RoPE on read, the stored rotation of the keys
// is undone before, and q does not get this rotation.
//
// Shared memory has Fixed (below), q [rows][D], o [rows][Dv] and o of earlier keys [rows][Dv]. If the warps undo the
// rotation of keys, it also has a row of K for each warp. The block computes as many rows at a time as fit (plan.h).
//
// States are folded: after each kFoldKeys keys (in a deterministic cache, fold_keys of the plan), the state over these
// keys is merged into the state over all earlier keys. So the rounding error of a sum does not grow with their number.
//
// A key that a row does not see takes no part in the row's arithmetic. So such a key may hold NaN, and the bits of a
// row do not depend on the other rows of the block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/bias.h"
#include "kernels/common/mask.h"
#include "kernels/common/merge.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/common/rope_table.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/simple/plan.h"
#include "kernels/cuda/attend/simple/rows.cuh"
#include "kernels/cuda/hadamard.cuh"
#include "kernels/cuda/rotate.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

constexpr int kAttendWarps = kAttendThreads / kWarpSize;
constexpr int kRowsPerWarp = kMaxBlockRows / kAttendWarps;
constexpr int kStageStride = kStageDims + 1;  // neighbouring keys lie in different banks
static_assert(kBlockKeys == kWarpSize && kAttendThreads % kStageDims == 0);

// Passed by value.
struct SimpleCall {
  AttendCall attend;
  int32_t num_rows;  // the largest number of rows that the block has in shared memory at once
};

struct Fixed {
  int32_t rows_end;  // the end of the block's rows over all rounds; a round computes num_rows rows
  kvc_backend_attend args;
  QueryMask masks[kMaxBlockRows];
  QueryPlace places[kMaxBlockRows];
  KeyTree tree;
  uint32_t seen[kMaxBlockRows];  // a bit for each of the 32 keys
  float units[kMaxBlockRows];    // factors of dot products: scales that do not belong to tokens
  float m[kMaxBlockRows], l[kMaxBlockRows], alpha[kMaxBlockRows];
  float folded_m[kMaxBlockRows], folded_l[kMaxBlockRows];
  int64_t k_row[kBlockKeys], v_row[kBlockKeys];  // byte offsets in the pools; -1: no row sees the key
  float k_scale[kBlockKeys], v_scale[kBlockKeys];
  float k_zero[kBlockKeys], v_zero[kBlockKeys];              // zero points of rows of uint4
  BlockRow block_row;                                        // how block rows are stored; not set for other rows
  const float *k_blocks[kBlockKeys], *v_blocks[kBlockKeys];  // scales of block rows that lie in the page
  int32_t position[kBlockKeys], index[kBlockKeys];           // index: the number of the key in its sequence
  float p[kMaxBlockRows][kBlockKeys];
  float stage[kBlockKeys][kStageStride];
};

struct AttendState {
  const AttendCall* call;
  Fixed* fixed;
  float *q, *o, *folded, *key_rows;
  const kvc_backend_item* item;
  AttendBlock block;
  int32_t rows, group, warp, lane, thread;
};

template <class T>
__device__ __forceinline__ float value_element(const AttendState& state, int32_t key, int32_t d) {
  const kvc_backend_layer& layer = state.call->layer;
  const Fixed& fixed = *state.fixed;
  if constexpr (kIsBlocks<T>) {
    return block_element(fixed.block_row, layer.v, fixed.v_row[key], fixed.v_blocks[key], d);
  } else {
    return row_element<T>(layer, layer.v, fixed.v_row[key], layer.v_head_dim, fixed.v_zero[key], d);
  }
}

// Element d of a key. In a latent row in two pools, the first dims are in the pool of V.
template <class T>
__device__ __forceinline__ float key_element(const AttendState& state, int32_t key, int32_t d) {
  const kvc_backend_layer& layer = state.call->layer;
  const Fixed& fixed = *state.fixed;
  if (layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT) {
    if (d < layer.v_head_dim) return value_element<T>(state, key, d);
    d -= layer.v_head_dim;
  }
  if constexpr (kIsBlocks<T>) {
    return block_element(fixed.block_row, layer.k, fixed.k_row[key], fixed.k_blocks[key], d);
  } else {
    return row_element<T>(layer, layer.k, fixed.k_row[key], layer.head_dim, fixed.k_zero[key], d);
  }
}

// Returns dim d of a key as attention uses it, from the stored elements that element(d) returns. If keys are stored
// before RoPE (table is not null), RoPE is applied by the key's position.
template <class Element>
__device__ __forceinline__ float attended_key(const AttendState& state, const double* table, int32_t key, int32_t d,
                                              const Element& element) {
  const kvc_backend_layer& layer = state.call->layer;
  if (table == nullptr || !is_rotated(layer, d)) return element(d);
  const Pair pair = pair_of(layer, d);
  float cos, sin;
  rope_angle(table, layer.rope_dim / 2, state.fixed->position[key], pair.index, &cos, &sin);
  return rotated_dim(pair, element(pair.first), element(pair.second), cos, sin);
}

// Finds the masks, places and scales of the block's rows, and sets their states to empty. Ends with a barrier.
__device__ __forceinline__ void begin_rows(const AttendState& state) {
  Fixed& fixed = *state.fixed;
  const AttendCall& call = *state.call;
  if (state.thread == 0) point_to_call(call, *state.item, &fixed);
  __syncthreads();
  if (state.thread < state.rows) {
    const int32_t r = state.thread;
    find_row(call, *state.item, state.block, state.group, r, &fixed);
    fixed.m[r] = fixed.folded_m[r] = -INFINITY;
    fixed.l[r] = fixed.folded_l[r] = 0.0f;
  }
  const int32_t dims = call.layer.v_head_dim;
  for (int32_t i = state.thread; i < state.rows * dims; i += kAttendThreads) {
    state.o[i] = 0.0f;
    state.folded[i] = 0.0f;
  }
  __syncthreads();
}

__device__ __forceinline__ int32_t q_head_of(const AttendState& state, int32_t row) {
  return state.block.head * state.group + (state.block.row_begin + row) % state.group;
}

// Writes q, times q_sign (attend/common/call.cuh), to shared memory. If keys are used as they are stored, rotated, then
// q is rotated in the same way.
template <class T>
__device__ __forceinline__ void load_queries(const AttendState& state) {
  const int32_t dims = state.call->layer.head_dim;
  const bool spreads = kIsSpread<T> && state.call->args.key_tables == nullptr;
  const int32_t block = spreads ? rotation_block(state.call->layer, dims) : 1;
  const float factor = state.call->q_sign / static_cast<float>(block);  // exact, because block is a power of two
  for (int32_t i = state.thread; i < state.rows * dims; i += kAttendThreads) {
    const int32_t row = i / dims;
    const float x = attended_query(*state.call, *state.item, state.fixed->places[row], q_head_of(state, row), i % dims);
    state.q[i] = x * factor;
  }
  if (!spreads) return;
  __syncthreads();
  for (int32_t r = state.warp; r < state.rows; r += kAttendWarps) {
    spread_by_warp(state.q + r * dims, dims, block, state.lane);
  }
}

// Finds the page, slot, index and position of key `key`. Without lists, some row must see the key.
__device__ __forceinline__ ListedKey find_key(const AttendState& state, PageCursor* cursor, int32_t key) {
  const AttendCall& call = *state.call;
  const Fixed& fixed = *state.fixed;
  if (has_lists(call)) return listed_key(call, *state.item, fixed.places[0], state.block.head, key);
  const int32_t page_size = call.layer.page_size;
  return {page_at(cursor, key / page_size), key % page_size, key, key_position(&fixed.tree, key)};
}

// Finds which of the keys [begin, begin + 32) each row sees, and the addresses of the keys that some row sees. Returns
// a bit for each key that some row sees.
template <class T>
__device__ __forceinline__ uint32_t find_keys(const AttendState& state, PageCursor* cursor, int32_t begin) {
  Fixed& fixed = *state.fixed;
  const kvc_backend_layer& layer = state.call->layer;
  for (int32_t r = state.warp; r < state.rows; r += kAttendWarps) {
    int32_t key = begin + state.lane;
    bool seen = sees_key(&fixed.tree, &fixed.masks[r], key);
    if (seen && state.call->listed.keys != nullptr) key = find_key(state, cursor, key).index;
    seen = seen && !mask_hides(state.call->args.bias, fixed.places[r].token, state.block.head, key);
    const uint32_t bits = __ballot_sync(kAllLanes, seen);
    if (state.lane == 0) fixed.seen[r] = bits;
  }
  __syncthreads();
  uint32_t any = 0;
  for (int32_t r = 0; r < state.rows; ++r) any |= fixed.seen[r];
  if (state.warp == 0) {
    const int32_t key = begin + state.lane;
    fixed.k_row[state.lane] = fixed.v_row[state.lane] = -1;
    fixed.k_scale[state.lane] = fixed.v_scale[state.lane] = 1.0f;
    if (((any >> state.lane) & 1u) != 0) {
      const ListedKey found = find_key(state, cursor, key);
      const int64_t page = found.page, slot = found.slot, head = state.block.head;
      fixed.k_row[state.lane] =
          page * layer.k.page_stride_bytes + head * layer.k.head_stride_bytes + slot * layer.k.slot_stride_bytes;
      fixed.v_row[state.lane] =
          page * layer.v.page_stride_bytes + head * layer.v.head_stride_bytes + slot * layer.v.slot_stride_bytes;
      fixed.position[state.lane] = found.position;
      fixed.index[state.lane] = found.index;
      if (kIsBlocks<T>) {
        fixed.k_blocks[state.lane] = token_scale(&layer.k_scales, page, head, slot);
        fixed.v_blocks[state.lane] = token_scale(&layer.v_scales, page, head, slot);
      } else if (has_token_scales(&layer.k_scales)) {
        const float k_scale = *token_scale(&layer.k_scales, page, state.block.head, slot);
        const float v_scale = *token_scale(&layer.v_scales, page, state.block.head, slot);
        fixed.k_scale[state.lane] = kIsSpread<T> ? without_zero_point(k_scale) : k_scale;
        fixed.v_scale[state.lane] = kIsSpread<T> ? without_zero_point(v_scale) : v_scale;
        if (kIsSpread<T>) {
          fixed.k_zero[state.lane] = static_cast<float>(zero_point_of(k_scale));
          fixed.v_zero[state.lane] = static_cast<float>(zero_point_of(v_scale));
        }
      }
    }
  }
  __syncthreads();
  return any;
}

// Writes the dims [d_begin, d_begin + dims) of the block's keys to fixed.stage. Keys that no row sees become zeros.
template <class T>
__device__ __forceinline__ void stage_keys(const AttendState& state, const double* table, int32_t d_begin,
                                           int32_t dims) {
  Fixed& fixed = *state.fixed;
  for (int32_t i = state.thread; i < kBlockKeys * kStageDims; i += kAttendThreads) {
    const int32_t key = i / kStageDims, d = i % kStageDims;
    const auto element = [&](int32_t at) { return key_element<T>(state, key, at); };
    const bool there = d < dims && fixed.k_row[key] >= 0;
    fixed.stage[key][d] = there ? attended_key(state, table, key, d_begin + d, element) : 0.0f;
  }
}

// Does the same for keys that are stored rotated and are rotated by RoPE on read. A warp undoes the first rotation of
// one key at a time, in its row of state.key_rows. All sums of this rotation are exact, because levels are integers.
template <class T>
__device__ __forceinline__ void stage_gathered_keys(const AttendState& state, const double* table, int32_t d_begin,
                                                    int32_t dims) {
  Fixed& fixed = *state.fixed;
  const int32_t head_dim = state.call->layer.head_dim, block = rotation_block(state.call->layer, head_dim);
  float* const row = state.key_rows + state.warp * head_dim;
  const auto element = [&](int32_t at) { return row[at]; };
#pragma unroll 1
  for (int32_t key = state.warp; key < kBlockKeys; key += kAttendWarps) {
    const bool there = fixed.k_row[key] >= 0;
    if (there) {
      for (int32_t d = state.lane; d < head_dim; d += kWarpSize) row[d] = key_element<T>(state, key, d);
      gather_by_warp(row, head_dim, block, state.lane);
    }
    for (int32_t d = state.lane; d < dims; d += kWarpSize) {
      fixed.stage[key][d] = there ? attended_key(state, table, key, d_begin + d, element) : 0.0f;
    }
    __syncwarp();  // the row will be overwritten
  }
}

// Computes the dot products of the warp's rows with the lane's key.
template <class T>
__device__ __forceinline__ void dot_products(const AttendState& state, const double* table,
                                             float (&dots)[kRowsPerWarp]) {
  Fixed& fixed = *state.fixed;
  const int32_t head_dim = state.call->layer.head_dim;
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) dots[i] = 0.0f;
  for (int32_t d_begin = 0; d_begin < head_dim; d_begin += kStageDims) {
    const int32_t dims = head_dim - d_begin < kStageDims ? head_dim - d_begin : kStageDims;
    if (kIsSpread<T> && table != nullptr) {
      stage_gathered_keys<T>(state, table, d_begin, dims);
    } else {
      stage_keys<T>(state, table, d_begin, dims);
    }
    __syncthreads();
    // The 64 dims have a sum of their own, because one chain of sums over many dims would lose digits.
    float sums[kRowsPerWarp] = {};
    for (int32_t d = 0; d < dims; ++d) {
      const float k = fixed.stage[state.lane][d];
#pragma unroll
      for (int i = 0; i < kRowsPerWarp; ++i) {
        const int32_t r = state.warp + i * kAttendWarps;
        if (r < state.rows) sums[i] = fmaf(state.q[r * head_dim + d_begin + d], k, sums[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsPerWarp; ++i) dots[i] += sums[i];
    __syncthreads();
  }
}

// Converts the dot product with the lane's key to a score, in the units of call.exp2_scale.
__device__ __forceinline__ float score_of(const AttendState& state, int32_t row, float dot) {
  const AttendCall& call = *state.call;
  const kvc_backend_attend& args = call.args;
  float score = dot * (state.fixed->units[row] * state.fixed->k_scale[state.lane]);
  if (call.has_options == 0) return score;
  score *= call.option_scale;
  if (args.softcap != 0.0) score = tanhf(score) * static_cast<float>(args.softcap);
  const QueryPlace& place = state.fixed->places[row];
  const uint32_t flags = plan_of(call)->flags;
  const int32_t distance = state.fixed->masks[row].position - state.fixed->position[state.lane];
  if (args.alibi_slopes != nullptr) {
    const int64_t slope = place.row * args.alibi_row_stride + q_head_of(state, row);
    score -= args.alibi_slopes[slope] * alibi_distance(flags, static_cast<float>(distance));
  }
  if (!has_bias(args.bias)) return score;
  return score + bias_of(args.bias, flags, place.row, place.token, q_head_of(state, row), state.block.head,
                         state.fixed->index[state.lane], distance);
}

// Updates the online softmax of the warp's rows by the lane's key: writes p (times the token's scale of V), m, l, and
// alpha, the factor of o.
__device__ __forceinline__ void add_scores(const AttendState& state, const float (&dots)[kRowsPerWarp]) {
  Fixed& fixed = *state.fixed;
#pragma unroll
  for (int i = 0; i < kRowsPerWarp; ++i) {
    const int32_t r = state.warp + i * kAttendWarps;
    if (r >= state.rows) break;
    const bool seen = ((fixed.seen[r] >> state.lane) & 1u) != 0;
    const float score = seen ? score_of(state, r, dots[i]) : -INFINITY;
    const float before = fixed.m[r], m = fmaxf(before, warp_max(score));
    const float p = score == -INFINITY ? 0.0f : exp2f((score - m) * state.call->exp2_scale);
    const float alpha = before == m ? 1.0f : exp2f((before - m) * state.call->exp2_scale);
    const float l = fixed.l[r] * alpha + warp_sum(p);
    fixed.p[r][state.lane] = p * fixed.v_scale[state.lane];
    __syncwarp();
    if (state.lane == 0) {
      fixed.m[r] = m;
      fixed.l[r] = l;
      fixed.alpha[r] = alpha;
    }
  }
}

// Multiplies the element of row r at `o` by alpha, and adds p times V to it, for dim d of the dims in fixed.stage.
__device__ __forceinline__ void add_values(const Fixed& fixed, int32_t r, int32_t d, float* o) {
  const uint32_t seen = fixed.seen[r];
  if (seen == 0) return;
  float sum = *o * fixed.alpha[r];
  if (seen == kAllLanes) {
#pragma unroll 8
    for (int32_t key = 0; key < kBlockKeys; ++key) sum = fmaf(fixed.p[r][key], fixed.stage[key][d], sum);
  } else {
    for (int32_t key = 0; key < kBlockKeys; ++key) {
      if (((seen >> key) & 1u) != 0) sum = fmaf(fixed.p[r][key], fixed.stage[key][d], sum);
    }
  }
  *o = sum;
}

// Computes o = o * alpha + P V. Ends with a barrier.
template <class T>
__device__ __forceinline__ void weigh_values(const AttendState& state) {
  Fixed& fixed = *state.fixed;
  const int32_t v_dim = state.call->layer.v_head_dim;
  for (int32_t d_begin = 0; d_begin < v_dim; d_begin += kStageDims) {
    const int32_t dims = v_dim - d_begin < kStageDims ? v_dim - d_begin : kStageDims;
    for (int32_t i = state.thread; i < kBlockKeys * kStageDims; i += kAttendThreads) {
      const int32_t key = i / kStageDims, d = i % kStageDims;
      const bool there = d < dims && fixed.v_row[key] >= 0;
      fixed.stage[key][d] = there ? value_element<T>(state, key, d_begin + d) : 0.0f;
    }
    __syncthreads();
    const int32_t d = state.thread % kStageDims;
    for (int32_t r = state.thread / kStageDims; r < state.rows && d < dims; r += kAttendThreads / kStageDims) {
      add_values(fixed, r, d, state.o + r * v_dim + d_begin + d);
    }
    __syncthreads();
  }
}

// The factor of a finished row of o: the scales of V, except scales of tokens.
__device__ __forceinline__ float value_unit(const AttendState& state, int32_t row) {
  return head_scale(&state.call->layer.v_scales, state.block.head) *
         row_factor(&state.call->args.v_scales, state.fixed->places[row].row, state.block.head);
}

// Merges the states over the keys since the last fold into the states over all earlier keys. Then sets the merged
// states to empty. All threads call it.
__device__ __forceinline__ void fold_states(const AttendState& state) {
  Fixed& fixed = *state.fixed;
  const int32_t dims = state.call->layer.v_head_dim;
  for (int32_t i = state.thread; i < state.rows * dims; i += kAttendThreads) {
    const int32_t r = i / dims;
    const NaturalMaximum next = natural_maximum(*state.call, fixed.m[r], fixed.l[r]);
    float m = fixed.folded_m[r], l = fixed.folded_l[r];
    const float o = state.o[i] * value_unit(state, r) * next.correction;
    merge_state(&state.folded[i], &m, &l, &o, next.m, fixed.l[r] * next.correction, 1);
    state.o[i] = 0.0f;
  }
  __syncthreads();
  if (state.thread < state.rows) {
    const int32_t r = state.thread;
    const NaturalMaximum next = natural_maximum(*state.call, fixed.m[r], fixed.l[r]);
    merge_state<float>(nullptr, &fixed.folded_m[r], &fixed.folded_l[r], nullptr, next.m, fixed.l[r] * next.correction,
                       0);
    fixed.m[r] = -INFINITY;
    fixed.l[r] = 0.0f;
  }
  __syncthreads();
}

// Writes the states of the block's rows to the partials, or the normalised rows to the output.
template <class T>
__device__ __forceinline__ void finish_rows(const AttendState& state) {
  const Fixed& fixed = *state.fixed;
  const AttendCall& call = *state.call;
  const kvc_backend_attend& args = call.args;
  const int32_t dims = call.layer.v_head_dim;
  const Type type = type_of(args.out.dtype);
  for (int32_t r = state.warp; r < state.rows; r += kAttendWarps) {
    const QueryPlace& place = fixed.places[r];
    const int32_t head = q_head_of(state, r);
    const float m = fixed.folded_m[r], l = fixed.folded_l[r];
    float* const o = state.folded + r * dims;
    if (kIsSpread<T>) gather_by_warp(o, dims, rotation_block(call.layer, dims), state.lane);
    if (place.partial_offset >= 0) {
      const int64_t states = place.states, index = place.first_state + head;
      float* partial = call.plan.partials + place.partial_offset;
      for (int32_t d = state.lane; d < dims; d += kWarpSize) partial[index * dims + d] = l == 0.0f ? 0.0f : o[d];
      if (state.lane == 0) {
        partial[states * dims + index] = m;
        partial[states * dims + states + index] = l;
      }
      continue;
    }
    const float* sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const float scale = final_scale(m, l, sink);
    const int64_t base = out_element(args, place.row, place.token, head);
    for (int32_t d = state.lane; d < dims; d += kWarpSize) {
      store_element(type, args.out.data, base + d, l == 0.0f ? 0.0f : o[d] * scale);
    }
    if (args.lse == nullptr || state.lane != 0) continue;
    args.lse[lse_element(args, place.row, place.token, head)] = final_lse(m, l, sink);
  }
}

template <class T>
__device__ __forceinline__ void attend_keys(const AttendState& state) {
  Fixed& fixed = *state.fixed;
  const AttendCall& call = *state.call;
  const double* table = key_table_of_row(&fixed.args, state.item->row);
  PageCursor cursor = pages_of_item(&call.plan.arrays.tables, state.item);
  KeyRange keys = {INT32_MAX, 0};
  for (int32_t r = 0; r < state.rows; ++r) {
    const KeyRange of_row = fixed.masks[r].keys;
    if (of_row.begin >= of_row.end) continue;
    keys.begin = of_row.begin < keys.begin ? of_row.begin : keys.begin;
    keys.end = of_row.end > keys.end ? of_row.end : keys.end;
  }
  const int32_t fold = call.plan.fold_keys > 0 ? call.plan.fold_keys : kFoldKeys;
  const int32_t first = keys.begin - keys.begin % kBlockKeys;
  for (int32_t begin = first; begin < keys.end; begin += kBlockKeys) {
    if (begin % fold == 0 && begin > first) fold_states(state);
    if (find_keys<T>(state, &cursor, begin) == 0) continue;
    float dots[kRowsPerWarp];
    dot_products<T>(state, table, dots);
    add_scores(state, dots);
    weigh_values<T>(state);
  }
  fold_states(state);
}

// The second launch bound is a number of blocks. A thread may use as many registers as this number of blocks on a
// multiprocessor allows. To undo the rotation of keys, a thread needs more registers, so the number is smaller.
template <class T>
__global__ void __launch_bounds__(kAttendThreads, kIsSpread<T> ? 5 : 6)
    attend_kernel(const __grid_constant__ SimpleCall simple) {
  const AttendCall& call = simple.attend;
  AttendState state;
  if (!find_block(call, &state.block)) return;
  state.call = &call;
  state.fixed = reinterpret_cast<Fixed*>(shared_bytes());
  state.item = call.plan.arrays.items + state.block.item;
  state.group = call.layer.num_q_heads / call.layer.num_kv_heads;
  state.thread = static_cast<int32_t>(threadIdx.x);
  state.warp = state.thread / kWarpSize;
  state.lane = state.thread % kWarpSize;
  state.q = reinterpret_cast<float*>(state.fixed + 1);
  state.o = state.q + simple.num_rows * call.layer.head_dim;
  state.folded = state.o + simple.num_rows * call.layer.v_head_dim;
  state.key_rows = state.folded + simple.num_rows * call.layer.v_head_dim;
  if (state.thread == 0) state.fixed->rows_end = state.block.row_end;  // in shared memory, to save a register
  if (kIsBlocks<T> && state.thread == 0) state.fixed->block_row = block_row(call.layer);
  __syncthreads();
  do {
    state.rows = state.fixed->rows_end - state.block.row_begin;
    if (state.rows > simple.num_rows) state.rows = simple.num_rows;
    begin_rows(state);
    load_queries<T>(state);
    __syncthreads();
    attend_keys<T>(state);
    finish_rows<T>(state);
    __syncthreads();  // the rows and states of this round are no longer read
    state.block.row_begin += simple.num_rows;
  } while (state.block.row_begin < state.fixed->rows_end);
}

}  // namespace kvc::kernels::cuda

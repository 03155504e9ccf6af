// The shared memory of a block of attend/wgmma/latent.cuh, how the threads of the block find their work, and how q is
// loaded.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/wgmma/instructions.cuh"
#include "kernels/cuda/attend/wgmma/latent_plan.h"
#include "kernels/cuda/attend/wgmma/layout.h"
#include "kernels/cuda/attend/wgmma/rows.cuh"
#include "kernels/cuda/attend/wgmma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

constexpr int32_t kLatentPanels = kLatentKeyDims / kPanelDims, kLatentValuePanels = kLatentValueDims / kPanelDims;
constexpr int32_t kLatentPanelBytes = kLatentTileKeys * kPanelPitch;  // a panel of a tile, and a panel of 64 rows of q
constexpr int32_t kLatentTileBytes = kLatentPanels * kLatentPanelBytes;
// A slot is emptied, and its next tile is loaded, in two parts: the first part of the next tile is loaded while the
// second part of this tile is still multiplied. Part i has the columns of V for the i-th product of each warpgroup
// (latent_panel). The last part also has the ninth panel. S of the first part is computed while the second part
// arrives. Each part has one barrier for its arrival and one for its end of use. (Four parts were not faster on an
// H200, and neither was a prefetch of the slot's next tile to the L2 cache.)
constexpr int32_t kLatentLoads = 2, kPanelsOfLoad = kLatentValuePanels / kLatentLoads;
// The number of warpgroups that compute scores. Each has a slot, and scores the tiles in this slot.
constexpr int32_t kScoringGroups = 2;
static_assert(kScoringGroups == kLatentStages);
// The number of warpgroups that add values, of columns of o that each of them computes, and of columns of one product.
// A product of 256 columns would need more registers than a thread has at launch.
constexpr int32_t kAddingGroups = 2, kLatentColumns = kLatentValueDims / kAddingGroups, kLatentProductColumns = 128;
constexpr int32_t kLatentParts = kLatentColumns / kLatentProductColumns;
constexpr int kLatentThreads = (kScoringGroups + kAddingGroups) * kWarpgroupThreads;
// The registers of a thread. At launch, each thread has 128.
constexpr int kRegistersToScore = 96, kRegistersToAdd = 160;
static_assert(kScoringGroups * kRegistersToScore + kAddingGroups * kRegistersToAdd <= 4 * 128);
static_assert(kLatentTileKeys == kWarpgroupRows && kLatentTileKeys == kPanelDims, "P is as large as a panel");

static_assert(kLatentLoads == kLatentParts);

// Returns the number of the i-th panel of V that belongs to part `load`.
__device__ __forceinline__ constexpr int32_t latent_panel(int32_t load, int32_t i) {
  constexpr int32_t kEach = kPanelsOfLoad / kAddingGroups;
  return i / kEach * (kLatentColumns / kPanelDims) + load * kEach + i % kEach;
}

// The properties of the tile in a slot. begin: the first key. kNoTile: there is no tile, and the other slot ends after
// this slot. kLastSlot: there is no tile, and the other slot has ended before.
constexpr int32_t kNoTile = -1, kLastSlot = -2;
struct LatentTile {
  int32_t begin, is_full;  // is_full: every row sees every key
  int32_t at;              // where the slot begins in shared memory; kept here to save a register
};

struct alignas(16) PackedScales {
  float of[kDsMlaScales];
};

struct LatentSlot {
  // Barriers. full: the parts of the tile have arrived (used only with TMA). known: m is written. scored: P and alphas
  // are written. empty: all warps that add values have multiplied the parts.
  uint64_t full[kLatentLoads], known, scored, empty[kLatentLoads];
  LatentTile tile;
  // The factors of o before the tile is added. At the end: the sum of p over the tiles of the slot, relative to m.
  float alphas[kWarpgroupRows];
  float m[kWarpgroupRows];               // the largest score of each row in all tiles up to this tile
  PackedScales scales[kLatentTileKeys];  // of the keys of the tile, if they are rows of fp8_ds_mla
};

struct LatentFixed : WgmmaRowsFixed<kWarpgroupRows> {
  LatentSlot slots[kLatentStages];
  AttendBlock block;  // the work of the block, kept here to save registers
  // The last odd_keys keys before keys_end include all keys whose NaN and infinity in V became zero (clean_values).
  uint32_t odd_keys;
  // Written at the end, for each row of o. scales: the factor of o, or 0 if the row is empty. targets: the element of
  // the partials or of the output where the row begins.
  float scales[kWarpgroupRows];
  int64_t targets[kWarpgroupRows];
};
using LatentState = WgmmaStateOf<LatentFixed>;

// Tile t is in slot t % kLatentStages. latent_phase(t) is the parity of the phase in which the slot holds the tile.
__device__ __forceinline__ int32_t latent_slot(int32_t t) { return t % kLatentStages; }
__device__ __forceinline__ LatentSlot& slot_of(const LatentState& state, int32_t t) {
  return state.fixed->slots[latent_slot(t)];
}
__device__ __forceinline__ uint32_t latent_phase(int32_t t) { return static_cast<uint32_t>(t / kLatentStages) & 1u; }

// kByBoxes: TMA copies the tiles.
template <bool kByBoxes>
__device__ __forceinline__ void begin_latent_rows(const LatentState& state) {
  LatentFixed& fixed = *state.fixed;
  if (state.thread == 0) {
    fixed.block = state.block;
    fixed.odd_keys = 0;
    point_to_call(state.call->attend, *state.item, &fixed);
    for (int32_t i = 0; i < kLatentStages; ++i) {
      LatentSlot& slot = fixed.slots[i];
      slot.tile.at = state.call->shape.k_at + i * kLatentTileBytes;
      for (uint64_t& full : slot.full) init_barrier(&full, 1);
      init_barrier(&slot.known, kWarpgroupThreads / kWarpSize);
      init_barrier(&slot.scored, kWarpgroupThreads / kWarpSize);
      for (uint64_t& empty : slot.empty) init_barrier(&empty, kAddingGroups * kWarpgroupThreads / kWarpSize);
    }
    publish_barriers();
    if (kByBoxes) {
      prefetch_map(&state.call->k_map);
      prefetch_map(&state.call->v_map);
    }
  }
  find_wgmma_rows<kWarpgroupRows>(state);
}

// Returns the thread's view of the block in fixed.block.
__device__ __forceinline__ LatentState state_of_block(const WgmmaCall& call) {
  LatentState state;
  state.call = &call;
  state.shared = aligned_shared_bytes();
  state.fixed = reinterpret_cast<LatentFixed*>(state.shared);
  state.block = state.fixed->block;
  state.item = call.attend.plan.arrays.items + state.block.item;
  state.group = call.attend.layer.num_q_heads / call.attend.layer.num_kv_heads;
  state.rows = state.block.row_end - state.block.row_begin;
  state.thread = static_cast<int32_t>(threadIdx.x);
  state.warp = state.thread / kWarpSize;
  state.lane = state.thread % kWarpSize;
  return state;
}

// The query head of row r of the block.
__device__ __forceinline__ int32_t head_of_latent_row(const LatentState& state, int32_t r) {
  const AttendBlock& block = state.fixed->block;
  return block.head * state.group + (block.row_begin + r) % state.group;
}

// ---- Queries --------------------------------------------------------------------------------------

constexpr int kLoadersOfRow = kLatentThreads / kWarpgroupRows;
constexpr int32_t kQueryChunks = kLatentKeyDims / 8, kValueChunks = kLatentValueDims / 8;  // of 16 bytes
static_assert(kLoadersOfRow * kWarpgroupRows == kLatentThreads && kQueryChunks % kLoadersOfRow == 0);

// A row of q in memory. values: its first kLatentValueDims dims. rotary: the dims after them, which may be in another
// tensor. The chunks [begin, end) cannot be copied, because they are rotated or not aligned.
struct LatentQuery {
  const unsigned char *values, *rotary;
  int32_t begin, end;
};

__device__ __forceinline__ LatentQuery find_query(const LatentState& state, int32_t r) {
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const QueryPlace& place = state.fixed->places[r];
  const int32_t head = head_of_latent_row(state, r);
  const auto row_of = [&](const kvc_backend_tensor& tensor, int64_t row_stride) {
    const int64_t element = place.row * row_stride + place.token * tensor.token_stride + head * tensor.head_stride;
    return static_cast<const unsigned char*>(tensor.data) + element * 2;
  };
  LatentQuery query;
  query.rotary = row_of(args.q, args.q_row_stride);
  query.values = query.rotary;
  if (args.qv.data != nullptr) {
    query.values = row_of(args.qv, args.qv_row_stride);
  } else {
    query.rotary += kLatentValueDims * 2;
  }
  const float* const cos_sin = state.item->part == KVC_BACKEND_PART_SINKS ? args.cos_sin_sinks : args.cos_sin;
  query.begin = cos_sin != nullptr ? call.layer.rope_offset / 8 : 0;
  query.end = cos_sin != nullptr ? (call.layer.rope_offset + call.layer.rope_dim + 7) / 8 : 0;
  if ((reinterpret_cast<uint64_t>(query.values) | reinterpret_cast<uint64_t>(query.rotary)) % 16 != 0) {
    query.begin = 0;
    query.end = kQueryChunks;
  }
  return query;
}

// The place of dim d of row r in the panels of q.
__device__ __forceinline__ unsigned char* query_place_of(const LatentState& state, int32_t r, int32_t d) {
  return state.shared + state.call->shape.q_at + d / kPanelDims * kLatentPanelBytes +
         swizzled(r, d % kPanelDims / 8, kPanelPitch) + d % 8 * 2;
}

// The chunks of q that a thread loads: of row thread / kLoadersOfRow, every kLoadersOfRow-th chunk. Chunks that cannot
// be copied are zeros.
struct LatentChunks {
  LatentQuery query;
  uint32_t words[kQueryChunks / kLoadersOfRow][4];
};

__device__ __forceinline__ LatentChunks load_latent_queries(const LatentState& state) {
  LatentChunks chunks = {};
  const int32_t r = state.thread / kLoadersOfRow, first = state.thread % kLoadersOfRow;
  if (r >= state.rows) return chunks;
  const LatentQuery query = chunks.query = find_query(state, r);
#pragma unroll
  for (int j = 0; j < kQueryChunks / kLoadersOfRow; ++j) {
    const int32_t chunk = first + j * kLoadersOfRow;
    if (chunk >= query.begin && chunk < query.end) continue;
    const unsigned char* const source =
        chunk < kValueChunks ? query.values + chunk * 16 : query.rotary + (chunk - kValueChunks) * 16;
    memcpy(chunks.words[j], __builtin_assume_aligned(source, 16), sizeof chunks.words[j]);
  }
  return chunks;
}

// Writes q to shared memory: rotated, and times the sign of the scale. Rows beyond the block's last row are zeros. Ends
// with a barrier of the block.
template <class T>
__device__ __forceinline__ void store_latent_queries(const LatentState& state, LatentChunks& chunks) {
  const AttendCall& call = state.call->attend;
  const float sign = call.q_sign;
  const uint32_t flip = sign < 0.0f ? 0x80008000u : 0u, keep = sign == 0.0f ? 0u : ~0u;
  const int32_t r = state.thread / kLoadersOfRow, first = state.thread % kLoadersOfRow;
#pragma unroll
  for (int j = 0; j < kQueryChunks / kLoadersOfRow; ++j) {
#pragma unroll
    for (uint32_t& word : chunks.words[j]) word = (word ^ flip) & keep;
    unsigned char* const target = query_place_of(state, r, (first + j * kLoadersOfRow) * 8);
    memcpy(__builtin_assume_aligned(target, 16), chunks.words[j], sizeof chunks.words[j]);
  }
#pragma unroll 1
  for (int32_t chunk = first; chunk < chunks.query.end; chunk += kLoadersOfRow) {
    if (chunk < chunks.query.begin) continue;
#pragma unroll 1
    for (int32_t d = chunk * 8; d < chunk * 8 + 8; ++d) {
      T element;
      narrow(attended_query(call, *state.item, state.fixed->places[r], head_of_latent_row(state, r), d) * sign,
             &element);
      memcpy(query_place_of(state, r, d), &element, sizeof element);
    }
  }
  publish_writes();
  __syncthreads();
}

}  // namespace kvc::kernels::cuda

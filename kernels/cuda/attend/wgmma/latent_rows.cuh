// What a block of latent rows has in shared memory, how a thread finds its work, and how q is loaded
// (attend/wgmma/latent.cuh).
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
constexpr int32_t kLatentPanelBytes = kLatentTileKeys * kPanelPitch;  // of a tile, and of 64 rows of q
constexpr int32_t kLatentTileBytes = kLatentPanels * kLatentPanelBytes;
// A tile is loaded, and its slot is emptied, in two parts with barriers of their own: S of the first part is computed
// while the second one arrives, and the first part is loaded again while the second one is still multiplied. Part i has
// the columns of V that are the i-th product of each warpgroup (latent_panel); the last part has the ninth panel too.
constexpr int32_t kLatentLoads = 2, kPanelsOfLoad = kLatentValuePanels / kLatentLoads;
// Warpgroups that score: each has a slot, and scores the tiles in it.
constexpr int32_t kScoringGroups = 2;
static_assert(kScoringGroups == kLatentStages);
// Columns of o of a warpgroup, and of a product. A product of 256 columns would need more registers than a block is
// launched with.
constexpr int32_t kAddingGroups = 2, kLatentColumns = kLatentValueDims / kAddingGroups, kLatentProductColumns = 128;
constexpr int32_t kLatentParts = kLatentColumns / kLatentProductColumns;
constexpr int kLatentThreads = (kScoringGroups + kAddingGroups) * kWarpgroupThreads;
// Registers of a thread. A block is launched with kLatentThreads times 128.
constexpr int kRegistersToScore = 96, kRegistersToAdd = 160;
static_assert(kScoringGroups * kRegistersToScore + kAddingGroups * kRegistersToAdd <= 4 * 128);
static_assert(kLatentTileKeys == kWarpgroupRows && kLatentTileKeys == kPanelDims, "P is as large as a panel");

static_assert(kLatentLoads == kLatentParts);

// Panel i of the panels of V that a part has.
__device__ __forceinline__ constexpr int32_t latent_panel(int32_t load, int32_t i) {
  constexpr int32_t kEach = kPanelsOfLoad / kAddingGroups;
  return i / kEach * (kLatentColumns / kPanelDims) + load * kEach + i % kEach;
}

// What is known of a tile while its slot is full. begin kNoTile: there is none; kLastSlot: nor in the slot after it.
constexpr int32_t kNoTile = -1, kLastSlot = -2;
struct LatentTile {
  int32_t begin, is_full;  // is_full: every row sees every key
  int32_t at;              // of the slot in shared memory; read there, so that no address is kept in a register
};

struct LatentSlot {
  // Parts of the tile have arrived; its maxima are known; P is there; all warps have multiplied it.
  uint64_t full[kLatentLoads], known, scored, empty[kLatentLoads];
  LatentTile tile;
  // Factors of o before the tile is added. At the end: the sum of p over the group's tiles, relative to its m.
  float alphas[kWarpgroupRows];
  float m[kWarpgroupRows];  // the largest scores of all tiles up to this one
};

struct LatentFixed : WgmmaRowsFixed<kWarpgroupRows> {
  LatentSlot slots[kLatentStages];
  AttendBlock block;  // the work of the block, so that it is not kept in registers
  // At the end, of each row of o: its scale, 0 if the row is empty; and the element of the partials or of the output
  // where it begins.
  float scales[kWarpgroupRows];
  int64_t targets[kWarpgroupRows];
};
using LatentState = WgmmaStateOf<LatentFixed>;

// Tile t is in slot t % stages. latent_phase is the parity of the phase in which the slot holds it.
__device__ __forceinline__ int32_t latent_slot(int32_t t) { return t % kLatentStages; }
__device__ __forceinline__ LatentSlot& slot_of(const LatentState& state, int32_t t) {
  return state.fixed->slots[latent_slot(t)];
}
__device__ __forceinline__ uint32_t latent_phase(int32_t t) { return static_cast<uint32_t>(t / kLatentStages) & 1u; }

__device__ __forceinline__ void begin_latent_rows(const LatentState& state) {
  LatentFixed& fixed = *state.fixed;
  if (state.thread == 0) {
    fixed.block = state.block;
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
    prefetch_map(&state.call->k_map);
    prefetch_map(&state.call->v_map);
  }
  find_wgmma_rows<kWarpgroupRows>(state);
}

// The thread's view of the block that fixed.block says.
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

// The layer's q head of row r of the block.
__device__ __forceinline__ int32_t head_of_latent_row(const LatentState& state, int32_t r) {
  const AttendBlock& block = state.fixed->block;
  return block.head * state.group + (block.row_begin + r) % state.group;
}

// ---- Queries --------------------------------------------------------------------------------------

constexpr int kLoadersOfRow = kLatentThreads / kWarpgroupRows;
constexpr int32_t kQueryChunks = kLatentKeyDims / 8, kValueChunks = kLatentValueDims / 8;  // 16 bytes each
static_assert(kLoadersOfRow * kWarpgroupRows == kLatentThreads && kQueryChunks % kLoadersOfRow == 0);

// A row of q in memory: the dims before kLatentValueDims and those after them, which may be in two tensors. Chunks from
// `begin` to `end` cannot be copied: they are rotated, or nothing is aligned.
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

// Where dim d of row r is among the panels of q.
__device__ __forceinline__ unsigned char* query_place_of(const LatentState& state, int32_t r, int32_t d) {
  return state.shared + state.call->shape.q_at + d / kPanelDims * kLatentPanelBytes +
         swizzled(r, d % kPanelDims / 8, kPanelPitch) + d % 8 * 2;
}

// A thread's chunks of q: of row `thread` / kLoadersOfRow, every kLoadersOfRow-th. Zeros where they cannot be copied.
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

// Writes q to shared memory, rotated, times the sign of the scale. Rows beyond the block's are zeros. Ends with a
// barrier of the block.
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

// Attention over latent rows (MLA, absorbed) by Hopper's warpgroup products (sm_90a). A block of four warpgroups
// computes up to 64 rows (query, head) over the keys of an item, 64 keys at a time. V is the first 512 dims of K's row
// of 576, so a tile is loaded once and multiplied twice. It has 9 panels of 64 keys x 64 dims: K is all of them, V the
// first 8.
//
//   producer  One warp loads tiles by TMA, one box a lane. There are two slots.
//   scores    One warpgroup computes S = Q K^T (64 x 64, 32 registers a thread) and the softmax. It writes P in 16 bits
//             (8 KiB) over the ninth panel of the tile, whose rotary dims only S reads, and the factors of o.
//   values    Two warpgroups compute o += P V, 256 columns each (128 registers a thread), from 4 panels of V
//   (MN-major).
//
// S and the softmax of a tile are computed while the tile before is multiplied with V. So no warp waits for a softmax,
// except at the first tile.
//
// Lower bounds: 1152 bytes a key, once for 64 rows, from memory or L2. 2 * 64 * 1088 operations a key are 2200 cycles
// for a tile. In this time an H200 delivers 45 KiB of the tile's 72 KiB to a multiprocessor. Shared memory moves 4 KiB
// for each 16 dims of S, 12 KiB for each 16 keys and 256 columns of o, and the tile itself: 312 KiB, or 2500 cycles at
// 128 bytes. A block has 222 KiB of shared memory (attend/wgmma/latent_plan.h). For registers see
// kRegistersToBringLatent and the constants after it.
//
// NaN in keys that a row does not see: the scores of such keys are replaced. In tiles that some row sees in part, NaN
// and infinity in V become zero after S is computed. A row that sees such a key has NaN scores from K already.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/pairs.cuh"
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
// A tile arrives in parts, each with its own barrier: S of the first panels is computed while the others arrive.
constexpr int32_t kLatentLoads = 3, kPanelsOfLoad = kLatentPanels / kLatentLoads;
// Warpgroups that score: each has a slot, and scores the tiles in it.
constexpr int32_t kScoringGroups = 2;
static_assert(kScoringGroups == kLatentStages);
// Columns of o of a warpgroup, and of a product. A product of 256 columns would need more registers than a block is
// launched with.
constexpr int32_t kAddingGroups = 2, kLatentColumns = kLatentValueDims / kAddingGroups, kLatentProductColumns = 128;
constexpr int32_t kLatentParts = kLatentColumns / kLatentProductColumns;
constexpr int kLoadingThreads = (kScoringGroups + kAddingGroups) * kWarpgroupThreads;
constexpr int kLatentThreads = kLoadingThreads + kWarpSize;  // the last warp is the producer
// Registers of a thread. A block is launched with 120 for each thread. The producer, which is no warpgroup, keeps them.
constexpr int kRegistersAtLaunch = 120, kRegistersToScore = 80, kRegistersToAdd = 160;
static_assert(kScoringGroups * kRegistersToScore + kAddingGroups * kRegistersToAdd <= 4 * kRegistersAtLaunch);
static_assert(kLatentThreads * kRegistersAtLaunch <= 65536);
static_assert(kLatentTileKeys == kWarpgroupRows && kLatentTileKeys == kPanelDims, "P is as large as a panel");

// What is known of a tile while its slot is full. begin kNoTile: there is none; kLastSlot: nor in the slot after it.
constexpr int32_t kNoTile = -1, kLastSlot = -2;
struct LatentTile {
  int32_t begin, is_full;  // is_full: every row sees every key
  int32_t at;              // of the tile in shared memory
};

struct LatentFixed : WgmmaRowsFixed<kWarpgroupRows> {
  // Of each slot: parts of the tile have arrived; its maxima are known; P is there; all warps have multiplied it.
  uint64_t full[kLatentStages][kLatentLoads], known[kLatentStages], scored[kLatentStages], empty[kLatentStages];
  LatentTile tiles[kLatentStages];
  AttendBlock block;  // the work of the block, so that it is not kept in registers
  // Factors of o before the tile is added. At the end: the sum of p over the group's tiles, relative to its m.
  float alphas[kLatentStages][kWarpgroupRows];
  float m[kLatentStages][kWarpgroupRows];  // the largest scores of all tiles up to this one
  float scales[kWarpgroupRows];            // at the end, of o; 0: the row is empty
};
using LatentState = WgmmaStateOf<LatentFixed>;

// Tile t is in slot t % stages. latent_phase is the parity of the phase in which the slot holds it.
__device__ __forceinline__ int32_t latent_slot(int32_t t) { return t % kLatentStages; }
__device__ __forceinline__ uint32_t latent_phase(int32_t t) { return static_cast<uint32_t>(t / kLatentStages) & 1u; }

__device__ __forceinline__ void begin_latent_rows(const LatentState& state) {
  LatentFixed& fixed = *state.fixed;
  if (state.thread == 0) {
    fixed.block = state.block;
    point_to_call(state.call->attend, *state.item, &fixed);
    for (int32_t i = 0; i < kLatentStages; ++i) {
      for (uint64_t& full : fixed.full[i]) init_barrier(&full, 1);
      init_barrier(&fixed.known[i], kWarpgroupThreads / kWarpSize);
      init_barrier(&fixed.scored[i], kWarpgroupThreads / kWarpSize);
      init_barrier(&fixed.empty[i], kAddingGroups * kWarpgroupThreads / kWarpSize);
    }
    publish_barriers();
    prefetch_map(&state.call->k_map);
    prefetch_map(&state.call->v_map);
  }
  find_wgmma_rows<kWarpgroupRows>(state);
}

// The layer's q head of row r of the block.
__device__ __forceinline__ int32_t head_of_row(const LatentState& state, int32_t r) {
  const AttendBlock& block = state.fixed->block;
  return block.head * state.group + (block.row_begin + r) % state.group;
}

// ---- Queries: the four consumer warpgroups -------------------------------------------------------

constexpr int kLoadersOfRow = kLoadingThreads / kWarpgroupRows;
constexpr int32_t kQueryChunks = kLatentKeyDims / 8, kValueChunks = kLatentValueDims / 8;  // 16 bytes each
static_assert(kLoadersOfRow * kWarpgroupRows == kLoadingThreads && kQueryChunks % kLoadersOfRow == 0);

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
  const int32_t head = head_of_row(state, r);
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

// Writes q to shared memory, rotated, times the sign of the scale. Rows beyond the block's are zeros. kLoadersOfRow
// threads copy a row. Ends with a barrier of the loading threads.
template <class T>
__device__ __forceinline__ void load_latent_queries(const LatentState& state) {
  constexpr int kAtOnce = kQueryChunks / kLoadersOfRow;
  const AttendCall& call = state.call->attend;
  const float sign = call.q_sign;
  const uint32_t flip = sign < 0.0f ? 0x80008000u : 0u, keep = sign == 0.0f ? 0u : ~0u;
  const int32_t loader = state.thread, r = loader / kLoadersOfRow;
  LatentQuery query = {nullptr, nullptr, 0, 0};
  if (r < state.rows) query = find_query(state, r);
  uint32_t words[kAtOnce][4] = {};
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j) {
    const int32_t chunk = loader % kLoadersOfRow + j * kLoadersOfRow;
    if (r >= state.rows || (chunk >= query.begin && chunk < query.end)) continue;
    const unsigned char* const source =
        chunk < kValueChunks ? query.values + chunk * 16 : query.rotary + (chunk - kValueChunks) * 16;
    memcpy(words[j], __builtin_assume_aligned(source, 16), sizeof words[j]);
  }
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j) {
    const int32_t chunk = loader % kLoadersOfRow + j * kLoadersOfRow;
#pragma unroll
    for (uint32_t& word : words[j]) word = (word ^ flip) & keep;
    memcpy(__builtin_assume_aligned(query_place_of(state, r, chunk * 8), 16), words[j], sizeof words[j]);
  }
  // The thread wrote zeros where it could not copy.
#pragma unroll 1
  for (int32_t chunk = loader % kLoadersOfRow; chunk < query.end; chunk += kLoadersOfRow) {
    if (chunk < query.begin) continue;
#pragma unroll 1
    for (int32_t d = chunk * 8; d < chunk * 8 + 8; ++d) {
      T element;
      narrow(attended_query(call, *state.item, state.fixed->places[r], head_of_row(state, r), d) * sign, &element);
      memcpy(query_place_of(state, r, d), &element, sizeof element);
    }
  }
  publish_writes();
  sync_threads_of<kLoadingThreads>(1 + kScoringGroups);
}

// ---- Producer: one warp --------------------------------------------------------------------------

// Begins the boxes of a tile: V's dims from the pool of V, the dims after them from the pool of K.
__device__ __forceinline__ void begin_latent_boxes(const LatentState& state, const BoxPlace& place, int32_t slot) {
  const WgmmaCall& call = *state.call;
  uint64_t* const full = state.fixed->full[slot];
  const int32_t keys = call.shape.box_keys, lanes = __popc(__ballot_sync(kAllLanes, place.needed != 0));
  if (state.lane < kLatentLoads) {
    arrive_expecting(&full[state.lane], static_cast<uint32_t>(lanes * keys * kPanelsOfLoad * kPanelPitch));
  }
  __syncwarp();
  if (place.needed == 0) return;
  unsigned char* const target =
      state.shared + call.shape.k_at + slot * kLatentTileBytes + state.lane * keys * kPanelPitch;
  const auto begin_panel = [&](const CUtensorMap& map, int32_t heads_first, int32_t panel, int32_t dim) {
    const int32_t inner = heads_first != 0 ? state.block.head : place.slot;
    const int32_t outer = heads_first != 0 ? place.slot : state.block.head;
    begin_box(target + panel * kLatentPanelBytes, &map, &full[panel / kPanelsOfLoad], dim, inner, outer, place.page);
  };
#pragma unroll
  for (int32_t i = 0; i < kLatentValuePanels; ++i) begin_panel(call.v_map, call.v_heads_first, i, i * kPanelDims);
  begin_panel(call.k_map, call.k_heads_first, kLatentValuePanels, rotary_dims(call.attend.layer).first);
}

__device__ __forceinline__ void bring_latent_tiles(const LatentState& state) {
  LatentFixed& fixed = *state.fixed;
  PageCursor cursor = pages_of_item(&state.call->attend.plan.arrays.tables, state.item);
  int32_t t = 0;
  const uint32_t keys = kLatentTileKeys, keys_end = fixed.keys_end;
  for (uint32_t begin = fixed.keys_begin / keys * keys; begin < keys_end; begin += keys) {
    const bool is_full = begin >= fixed.full_begin && begin + keys <= fixed.full_end;
    const BoxPlace place = find_box(state, &cursor, begin, kLatentTileKeys, is_full);
    if (__ballot_sync(kAllLanes, place.needed != 0) == 0) continue;
    const int32_t slot = latent_slot(t);
    wait_phase(&fixed.empty[slot], latent_phase(t) ^ 1u);
    if (state.lane == 0) {
      fixed.tiles[slot] = {static_cast<int32_t>(begin), is_full ? 1 : 0,
                           state.call->shape.k_at + slot * kLatentTileBytes};
    }
    begin_latent_boxes(state, place, slot);
    ++t;
  }
  for (int32_t end = t + kScoringGroups; t < end; ++t) {
    const int32_t slot = latent_slot(t);
    wait_phase(&fixed.empty[slot], latent_phase(t) ^ 1u);
    if (state.lane == 0) {
      fixed.tiles[slot].begin = t + 1 < end ? kNoTile : kLastSlot;
      arrive(&fixed.full[slot][0]);
    }
  }
}

// ---- Scores: two warpgroups ----------------------------------------------------------------------

// Starts S of all rows and the tile in a slot, as a group of its own. full: the barriers of the tile's parts.
template <class T>
__device__ __forceinline__ void begin_latent_scores(uint32_t q, uint32_t k, uint64_t* full, uint32_t phase,
                                                    float (&s)[kLatentTileKeys / 2]) {
  constexpr int kStepsOfPanel = kPanelDims / kMmaDepth;
#pragma unroll 1
  for (int load = 0; load < kLatentLoads; ++load) {
    wait_phase(&full[load], phase);
    begin_products();
#pragma unroll
    for (int step = 0; step < kPanelsOfLoad * kStepsOfPanel; ++step) {
      const uint32_t at = static_cast<uint32_t>((load * kPanelsOfLoad + step / kStepsOfPanel) * kLatentPanelBytes +
                                                step % kStepsOfPanel * kMmaDepth * 2);
      multiply_shared(T{}, s, rows_descriptor(q + at), rows_descriptor(k + at), load + step > 0);
    }
  }
  close_products();
}

// The thread's part of P as the left operand of products.
template <class T>
__device__ __forceinline__ void store_probabilities(unsigned char* panel, int32_t first_row, int32_t lane,
                                                    const float (&s)[kLatentTileKeys / 2]) {
#pragma unroll
  for (int i = 0; i < kLatentTileKeys / 8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = pack(T{}, s[i * 4 + half * 2], s[i * 4 + half * 2 + 1]);
      unsigned char* const target = panel + swizzled(first_row + half * 8, i, kPanelPitch) + lane % 4 * 4;
      memcpy(__builtin_assume_aligned(target, 4), &pair, sizeof pair);
    }
  }
}

// Replaces NaN and infinity in V of a tile by zero. All threads of the warpgroup call it.
template <class T>
__device__ __forceinline__ void clean_values(int32_t thread, unsigned char* values) {
#pragma unroll 4
  for (int32_t i = thread; i < kLatentValuePanels * kLatentPanelBytes / 16; i += kWarpgroupThreads) {
    uint32_t words[4];
    memcpy(words, __builtin_assume_aligned(values + i * 16, 16), sizeof words);
    if (take_not_finite<T>(words) == 0) continue;
    memcpy(__builtin_assume_aligned(values + i * 16, 16), words, sizeof words);
  }
}

// The online softmax of a row: s becomes p. before: the largest score of all earlier tiles. largest: the same of this
// tile too. Returns the factor of o. The group's own sum has the maximum of its own last tile.
__device__ __forceinline__ float soften_latent_row(float scale, float before, float largest, int half,
                                                   float (&s)[kLatentTileKeys / 2], WgmmaSums& sums) {
  const float origin = largest == -INFINITY ? 0.0f : largest;  // no key was seen yet, so every p is 0
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kLatentTileKeys / 4; ++i) {
    float& p = s[i / 2 * 4 + half * 2 + i % 2];
    p = fast_exp2((p - origin) * scale);
    sum += p;
  }
  const float own = sums.m[half] == largest ? 1.0f : fast_exp2((sums.m[half] - largest) * scale);
  sums.l[half] = fmaf(sums.l[half], own, sum);
  sums.m[half] = largest;
  return before == largest ? 1.0f : fast_exp2((before - largest) * scale);
}

// The largest scores of earlier tiles, by the other group, of the thread's rows.
struct LatentMaxima {
  float of[2];
};
__device__ __forceinline__ LatentMaxima maxima_before(const LatentState& state, int32_t t, int32_t first_row) {
  LatentFixed& fixed = *state.fixed;
  if (t == 0) return {{-INFINITY, -INFINITY}};
  wait_phase(&fixed.known[latent_slot(t - 1)], latent_phase(t - 1));
  return {{fixed.m[latent_slot(t - 1)][first_row], fixed.m[latent_slot(t - 1)][first_row + 8]}};
}

// Finishes row r, but for o: writes m and l to the partials or the LSE to the output, and finds the scale of o.
__device__ __forceinline__ void finish_latent_row(const LatentState& state, int32_t r) {
  LatentFixed& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const QueryPlace& place = fixed.places[r];
  const int32_t head = head_of_row(state, r);
  const float m = fmaxf(fixed.m[0][r], fixed.m[1][r]);
  float both = 0.0f;
  for (int group = 0; group < kScoringGroups; ++group) {
    const float of = fixed.m[group][r];
    both += fixed.alphas[group][r] * (of == m ? 1.0f : fast_exp2((of - m) * call.exp2_scale));
  }
  const NaturalMaximum natural = natural_maximum(call, m, both);
  const float l = both * natural.correction;
  float scale = natural.correction * (head_scale(&call.layer.v_scales, fixed.block.head) *
                                      row_factor(&args.v_scales, place.row, fixed.block.head));
  if (place.partial_offset >= 0) {
    float* const sums = call.plan.partials + place.partial_offset + int64_t{place.states} * kLatentValueDims;
    sums[place.first_state + head] = natural.m;
    sums[place.states + place.first_state + head] = l;
  } else {
    const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const FinalState final = final_state(static_cast<double>(natural.m), static_cast<double>(l), sink);
    scale *= static_cast<float>(final.scale);
    if (args.lse != nullptr) args.lse[lse_element(args, place.row, place.token, head)] = final.lse;
  }
  fixed.scales[r] = l == 0.0f ? 0.0f : scale;
}

// Ends a group at tile t, which does not exist. The group that ends last finishes the rows.
__device__ __forceinline__ void end_latent_scores(const LatentState& state, int32_t group, int32_t t, bool is_last,
                                                  int32_t first_row, const WgmmaSums& sums) {
  LatentFixed& fixed = *state.fixed;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = sum_of_row(sums.l[half]);
    if (state.lane % 4 == 0) {
      fixed.m[group][first_row + half * 8] = sums.m[half];
      fixed.alphas[group][first_row + half * 8] = l;
    }
  }
  if (is_last) {
    sync_threads_of<kWarpgroupThreads>(1 + group);
    wait_phase(&fixed.scored[latent_slot(t - 1)], latent_phase(t - 1));
    const int32_t r = state.thread % kWarpgroupThreads;
    if (r < state.rows) finish_latent_row(state, r);
  }
  leave_slot(state, &fixed.scored[latent_slot(t)]);
}

// group: of the two that score.
template <class T>
__device__ __forceinline__ void score_latent_tiles(const LatentState& state, int32_t group) {
  LatentFixed& fixed = *state.fixed;
  const WgmmaShape& shape = state.call->shape;
  const float scale = state.call->attend.exp2_scale;
  const int32_t thread = state.thread % kWarpgroupThreads, slot = group;
  const int32_t first_row = thread / kWarpSize * kMmaRows + state.lane / 4;
  const uint32_t q = shared_address(state.shared + shape.q_at);
  WgmmaSums sums = {{-INFINITY, -INFINITY}, {}};
  float s[kLatentTileKeys / 2];
  for (int32_t t = group;; t += kScoringGroups) {
    wait_phase(&fixed.full[slot][0], latent_phase(t));
    const LatentTile tile = fixed.tiles[slot];
    if (tile.begin < 0) {
      end_latent_scores(state, group, t, tile.begin == kLastSlot, first_row, sums);
      break;
    }
    // Read from shared memory, so that addresses in the tile are not kept in registers from tile to tile.
    unsigned char* const k_tile = state.shared + tile.at;
    begin_latent_scores<T>(q, shared_address(k_tile), fixed.full[slot], latent_phase(t), s);
    wait_products<0>();
    hold_results(s);
    score_tile(state, tile.begin, tile.is_full != 0, first_row, s);
    float largest[2] = {largest_of_row(s, 0, -INFINITY), largest_of_row(s, 1, -INFINITY)};
    const LatentMaxima before = maxima_before(state, t, first_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = fmaxf(largest[half], before.of[half]);
      if (state.lane % 4 == 0) fixed.m[slot][first_row + half * 8] = largest[half];
    }
    leave_slot(state, &fixed.known[slot]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float alpha = soften_latent_row(scale, before.of[half], largest[half], half, s, sums);
      if (state.lane % 4 == 0) fixed.alphas[slot][first_row + half * 8] = alpha;
    }
    // All four warps must have read the last dims of their keys before P replaces them.
    sync_threads_of<kWarpgroupThreads>(1 + group);
    store_probabilities<T>(k_tile + kLatentValuePanels * kLatentPanelBytes, first_row, state.lane, s);
    if (tile.is_full == 0) clean_values<T>(thread, k_tile);
    publish_writes();
    leave_slot(state, &fixed.scored[slot]);
  }
}

// ---- Values: two warpgroups ----------------------------------------------------------------------

// A thread's part of the warpgroup's columns of o.
struct LatentColumns {
  WgmmaRows<kLatentProductColumns> parts[kLatentParts];
};

// Starts o += P V of the columns at v, as a group of its own.
template <class T>
__device__ __forceinline__ void begin_latent_values(uint32_t p, uint32_t v, LatentColumns& columns) {
#pragma unroll
  for (int part = 0; part < kLatentParts; ++part) {
    const uint32_t at = v + static_cast<uint32_t>(part * (kLatentProductColumns / kPanelDims) * kLatentPanelBytes);
#pragma unroll
    for (int step = 0; step < kLatentTileKeys / kMmaDepth; ++step) {
      const uint32_t keys = static_cast<uint32_t>(step * kMmaDepth);
      multiply_columns(T{}, columns.parts[part].o, rows_descriptor(p + keys * 2),
                       columns_descriptor(at + keys * kPanelPitch, kLatentTileKeys));
    }
  }
  close_products();
}

__device__ __forceinline__ void hold_columns(LatentColumns& columns) {
#pragma unroll
  for (int part = 0; part < kLatentParts; ++part) hold_results(columns.parts[part].o);
}

// Two elements as they are stored: float32, or 16 bits of `type`.
__device__ __forceinline__ void convert_pair(Type, float low, float high, float (&pair)[2]) {
  pair[0] = low;
  pair[1] = high;
}
__device__ __forceinline__ void convert_pair(Type type, float low, float high, uint16_t (&pair)[2]) {
  const uint32_t packed = type == Type::kF16 ? pack(F16{}, low, high) : pack(Bf16{}, low, high);
  memcpy(pair, &packed, sizeof packed);
}

// Writes the thread's columns of a row, times `scale`.
template <class Element>
__device__ __forceinline__ void store_columns(Element* target, Type type, const LatentColumns& columns, int half,
                                              float scale) {
  const bool aligned = reinterpret_cast<uint64_t>(target) % (2 * sizeof(Element)) == 0;
#pragma unroll
  for (int i = 0; i < kLatentColumns / 8; ++i) {
    const auto& o = columns.parts[i / (kLatentProductColumns / 8)].o;
    const int j = i % (kLatentProductColumns / 8) * 4 + half * 2;
    Element pair[2];
    convert_pair(type, scale == 0.0f ? 0.0f : o[j] * scale, scale == 0.0f ? 0.0f : o[j + 1] * scale, pair);
    if (aligned) {
      memcpy(__builtin_assume_aligned(static_cast<void*>(target + i * 8), sizeof pair), pair, sizeof pair);
    } else {
      target[i * 8] = pair[0];
      target[i * 8 + 1] = pair[1];
    }
  }
}

// Writes the thread's columns of row r to the partials, or normalised to the output.
__device__ __forceinline__ void store_latent_row(const LatentState& state, const LatentColumns& columns, int32_t group,
                                                 int32_t r, int half) {
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const QueryPlace& place = state.fixed->places[r];
  const int32_t head = head_of_row(state, r);
  const int32_t column = group * kLatentColumns + state.lane % 4 * 2;
  const float scale = state.fixed->scales[r];
  const bool is_partial = place.partial_offset >= 0;
  const Type type = is_partial ? Type::kF32 : type_of(args.out.dtype);
  void* const data = is_partial ? call.plan.partials : args.out.data;
  const int64_t at = column + (is_partial ? place.partial_offset + int64_t{place.first_state + head} * kLatentValueDims
                                          : out_element(args, place.row, place.token, head));
  if (type == Type::kF32) {
    store_columns(static_cast<float*>(data) + at, type, columns, half, scale);
  } else {
    store_columns(static_cast<uint16_t*>(data) + at, type, columns, half, scale);
  }
}

// group: 0 or 1, the half of o's columns that the warpgroup computes.
template <class T>
__device__ __forceinline__ void add_latent_tiles(const LatentState& state, int32_t group) {
  LatentFixed& fixed = *state.fixed;
  const uint32_t tiles = shared_address(state.shared + state.call->shape.k_at);
  const uint32_t values_at = static_cast<uint32_t>(group * (kLatentColumns / kPanelDims) * kLatentPanelBytes);
  const int32_t first_row = state.thread % kWarpgroupThreads / kWarpSize * kMmaRows + state.lane / 4;
  LatentColumns columns = {};
  int32_t t = 0;
  for (;; ++t) {
    const int32_t slot = latent_slot(t);
    wait_phase(&fixed.scored[slot], latent_phase(t));
    if (fixed.tiles[slot].begin < 0) break;
    for (uint64_t& full : fixed.full[slot]) wait_phase(&full, latent_phase(t));  // makes TMA's writes visible
    const uint32_t tile = tiles + static_cast<uint32_t>(slot * kLatentTileBytes);
    const float alpha[2] = {fixed.alphas[slot][first_row], fixed.alphas[slot][first_row + 8]};
    if (__ballot_sync(kAllLanes, alpha[0] != 1.0f || alpha[1] != 1.0f) != 0) {
#pragma unroll
      for (int i = 0; i < kLatentColumns / 2; ++i) {
        columns.parts[i / (kLatentProductColumns / 2)].o[i % (kLatentProductColumns / 2)] *= alpha[i / 2 % 2];
      }
    }
    hold_columns(columns);  // the products have these registers as results
    begin_products();
    begin_latent_values<T>(tile + kLatentValuePanels * kLatentPanelBytes, tile + values_at, columns);
    wait_products<0>();
    hold_columns(columns);
    leave_slot(state, &fixed.empty[slot]);
  }
  wait_phase(&fixed.scored[latent_slot(t + 1)], latent_phase(t + 1));  // the other group has ended too
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (first_row + half * 8 < state.rows) store_latent_row(state, columns, group, first_row + half * 8, half);
  }
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

template <class T>
__device__ __forceinline__ void attend_latent_by_warpgroups(const WgmmaCall& call) {
  {
    LatentState state;
    if (!begin_wgmma_block(call, &state)) return;
    begin_latent_rows(state);
  }
  __syncthreads();
  const LatentState state = state_of_block(call);
  if (state.thread >= kLoadingThreads) {
    bring_latent_tiles(state);
    return;
  }
  const int32_t warpgroup = state.thread / kWarpgroupThreads;
  load_latent_queries<T>(state);
  if (warpgroup < kScoringGroups) {
    give_registers<kRegistersToScore>();
    score_latent_tiles<T>(state, warpgroup);
  } else {
    take_registers<kRegistersToAdd>();
    add_latent_tiles<T>(state, warpgroup - kScoringGroups);
  }
}

// Only one architecture has the body, as in attend_wgmma_kernel.
template <class T>
__global__ void __launch_bounds__(kLatentThreads, 1)
    attend_wgmma_latent_kernel(const __grid_constant__ WgmmaCall call) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_latent_by_warpgroups<T>(call);
#endif
}

WgmmaKernel wgmma_latent_kernel(bool is_f16);

}  // namespace kvc::kernels::cuda

// Attention over latent rows (MLA, absorbed) by Hopper's warpgroup products (sm_90a). A thread block computes up to 64
// rows (pairs of a query and a query head) over the keys of an item, 64 keys at a time. V is the first 512 dims of K's
// row of 576, so a tile is loaded once and multiplied twice. A tile has 9 panels of 64 keys x 64 dims. All panels are
// K, and the first 8 are V. There are two slots for tiles.
//
//   scores   Two warpgroups score, one for each slot. Each loads the tiles of its slot (latent_tiles.cuh), and
//            dequantises them if the rows are those of fp8_ds_mla (latent_packed.cuh). The panels of a tile arrive in
//            two parts, and the warpgroup computes S = Q K^T (64 x 64, 32 registers a thread) as they arrive. Then it
//            computes the softmax. It writes the factors that rescale o, and P in 16 bits (8 KiB). P overwrites the
//            ninth panel of the tile (rotary dims), which is needed only for S. The largest scores so far are passed
//            from one warpgroup to the other.
//   values   Two warpgroups compute o += P V, 256 columns each (128 registers a thread), from 4 panels of V (MN-major).
//
// So S of a tile can be computed during the softmax, the product with V, or the load of the tile in the other slot.
//
// Lower bounds: the 1152 bytes of a key are read once for 64 rows, from memory or L2. 2 * 64 * 1088 operations a key
// are 2200 cycles for a tile. In this time an H200 delivers 45 KiB of the tile's 72 KiB to a multiprocessor. Shared
// memory moves 4 KiB for each 16 dims of S, 12 KiB for each 16 keys and 256 columns of o, and the tile itself. That is
// 312 KiB, or 2500 cycles at 128 bytes a cycle. A block has about 225 KiB of shared memory
// (attend/wgmma/latent_plan.h). A thread that scores has kRegistersToScore registers, and a thread that adds values has
// kRegistersToAdd.
//
// Keys that a row does not see may hold NaN. The scores of such keys are replaced by -inf. If some row does not see
// every key of a tile, NaN and infinity in its V become zero after S is computed. They are added at the end to the rows
// that see their keys. (They are also in K. But the score may be -inf, or finite with softcap.)
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/common/merge.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/common/scales.h"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/wgmma/latent_packed.cuh"
#include "kernels/cuda/attend/wgmma/latent_rows.cuh"
#include "kernels/cuda/attend/wgmma/latent_tiles.cuh"

namespace kvc::kernels::cuda {

// How a scoring warpgroup finds and copies the tiles of its slot. kListed: the call has lists. kPacked: rows of
// fp8_ds_mla.
template <bool kListed, bool kPacked>
using LatentWalkOf = std::conditional_t<kPacked, PackedWalk<std::conditional_t<kListed, ListedWalk, TileSearch>>,
                                        std::conditional_t<kListed, ListedWalk, LatentWalk>>;
template <class Walk>
constexpr bool kHasLists = std::is_same_v<Walk, ListedWalk> || std::is_same_v<Walk, PackedWalk<ListedWalk>>;
template <class Walk>
constexpr bool kIsPacked = std::is_same_v<Walk, PackedWalk<ListedWalk>> || std::is_same_v<Walk, PackedWalk<TileSearch>>;
// Whether TMA copies the tiles. Then only the first warp of a scoring warpgroup needs the walk.
template <class Walk>
constexpr bool kByBoxes = std::is_same_v<Walk, LatentWalk>;

// Loads the next tile of slot `number`, as soon as the slot's previous tile is no longer read. If there is no next
// tile, it marks the end of the slot. All threads that need the walk call it.
template <class Walk>
__device__ __forceinline__ void bring_latent_tile(const LatentState& state, int32_t number, Walk* walk) {
  LatentSlot& slot = state.fixed->slots[number];
  const LatentNext next = next_tile(state, number, walk);
  decltype(find_copies(state, next, walk)) copies = {};
  if (next.found) copies = find_copies(state, next, walk);
#pragma unroll
  for (int32_t load = 0; load < kLatentLoads; ++load) {
    wait_phase(&slot.empty[load], next.phase);
    if (load == 0 && state.thread % kWarpgroupThreads == 0) {
      slot.tile.begin = next.found ? static_cast<int32_t>(next.begin) : next.is_next ? kNoTile : kLastSlot;
      slot.tile.is_full = next.is_full ? 1 : 0;
    }
    if (next.found) {
      begin_copies(state, copies, slot, load);
    } else if (kByBoxes<Walk> && state.lane == 0) {
      arrive(&slot.full[load]);
    }
  }
}

// ---- Scores: two warpgroups ----------------------------------------------------------------------

// Starts the products S = Q K^T of all rows and the keys in a slot, as one group. The tile's first part must have
// arrived. Waits for the other parts.
template <class T, class Walk>
__device__ __forceinline__ void begin_latent_scores(const LatentState& state, uint32_t q, uint32_t k, LatentSlot& slot,
                                                    int32_t group, uint32_t phase, const Walk* walk,
                                                    float (&s)[kLatentTileKeys / 2]) {
  const auto multiply_panel = [&](uint32_t panel, bool is_first) {
#pragma unroll
    for (int i = 0; i < kPanelDims / kMmaDepth; ++i) {
      const uint32_t at = panel + static_cast<uint32_t>(i * kMmaDepth * 2);
      multiply_shared(T{}, s, rows_descriptor(q + at), rows_descriptor(k + at), !is_first || i > 0);
    }
  };
#pragma unroll 1
  for (int32_t load = 0; load < kLatentLoads; ++load) {
    if (load > 0) wait_for_load(state, slot, group, load, phase, walk);
    begin_products();
#pragma unroll
    for (int32_t i = 0; i < kPanelsOfLoad; ++i) {
      multiply_panel(static_cast<uint32_t>(latent_panel(load, i) * kLatentPanelBytes), load + i == 0);
    }
  }
  multiply_panel(kLatentValuePanels * kLatentPanelBytes, false);
  close_products();
}

// Writes the thread's part of P, as the left operand of products. panel: where the operand begins in shared memory.
template <class T>
__device__ __forceinline__ void store_probabilities(const LatentState& state, int32_t panel, int32_t first_row,
                                                    const float (&s)[kLatentTileKeys / 2]) {
  const int32_t first = panel + swizzled(first_row, 0, kPanelPitch) + state.lane % 4 * 4;
#pragma unroll
  for (int i = 0; i < kLatentTileKeys / 8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = pack(T{}, s[i * 4 + half * 2], s[i * 4 + half * 2 + 1]);
      // Chunk i of the row, permuted by the swizzle. Rows that are 8 apart have the same permutation.
      unsigned char* const target = state.shared + (first ^ (i << 4)) + half * kPatternBytes;
      memcpy(__builtin_assume_aligned(target, 4), &pair, sizeof pair);
    }
  }
}

// Replaces NaN and infinity in V of the slot's tile by zero. All threads of the warpgroup call it.
template <class T>
__device__ __forceinline__ void clean_values(const LatentState& state, const LatentSlot& slot) {
  constexpr int32_t kChunks = kLatentValuePanels * kLatentPanelBytes / 16;
  LatentFixed& fixed = *state.fixed;
  unsigned char* const values = state.shared + slot.tile.at;
#pragma unroll 2
  for (int32_t i = hidden(state.thread) % kWarpgroupThreads; i < kChunks; i += kWarpgroupThreads) {
    uint32_t words[4];
    memcpy(words, __builtin_assume_aligned(values + i * 16, 16), sizeof words);
    if (take_not_finite<T>(words) == 0) continue;
    memcpy(__builtin_assume_aligned(values + i * 16, 16), words, sizeof words);
    const auto key = static_cast<uint32_t>(slot.tile.begin + i / kChunksOfPanel % kLatentTileKeys);
    if (key >= fixed.keys_begin && key < fixed.keys_end) atomicMax(&fixed.odd_keys, fixed.keys_end - key);
  }
}

// The online softmax of a row. s becomes p. before: the largest score of all earlier tiles. largest: the largest score
// of all tiles up to this tile. Returns the factor that rescales o. sums: l over the tiles of this warpgroup only,
// relative to sums.m. sums.m is `largest` of the warpgroup's previous tile.
__device__ __forceinline__ float softmax_latent_row(float scale, float before, float largest, int half,
                                                    float (&s)[kLatentTileKeys / 2], WgmmaSums& sums) {
  const float origin = largest == -INFINITY ? 0.0f : largest;  // while no key was seen, every p is 0
  float sum[2] = {};                                           // two sums, so that chains of additions are short
#pragma unroll
  for (int i = 0; i < kLatentTileKeys / 4; ++i) {
    float& p = s[i / 2 * 4 + half * 2 + i % 2];
    p = fast_exp2((p - origin) * scale);
    sum[i % 2] += p;
  }
  const float own = sums.m[half] == largest ? 1.0f : fast_exp2((sums.m[half] - largest) * scale);
  sums.l[half] = fmaf(sums.l[half], own, sum[0] + sum[1]);
  sums.m[half] = largest;
  return before == largest ? 1.0f : fast_exp2((before - largest) * scale);
}

// The largest scores of the thread's rows in all earlier tiles. The other warpgroup writes them.
struct LatentMaxima {
  float of[2];
};
__device__ __forceinline__ LatentMaxima maxima_before(const LatentState& state, int32_t t, int32_t first_row) {
  if (t == 0) return {{-INFINITY, -INFINITY}};
  LatentSlot& other = slot_of(state, t - 1);
  wait_phase(&other.known, latent_phase(t - 1));
  return {{other.m[first_row], other.m[first_row + 8]}};
}

// Finishes row r, except o: writes m and l to the partials, or the LSE to the output. Finds the scale and the target of
// the row's o.
__device__ __forceinline__ void finish_latent_row(const LatentState& state, int32_t r) {
  LatentFixed& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  const kvc_backend_attend& args = call.args;
  const QueryPlace& place = fixed.places[r];
  const int32_t head = head_of_latent_row(state, r);
  const float m = fmaxf(fixed.slots[0].m[r], fixed.slots[1].m[r]);
  float both = 0.0f;
  for (const LatentSlot& slot : fixed.slots) {
    const float of = slot.m[r];
    both += slot.alphas[r] * (of == m ? 1.0f : fast_exp2((of - m) * call.exp2_scale));
  }
  const NaturalMaximum natural = natural_maximum(call, m, both);
  const float l = both * natural.correction;
  float scale = natural.correction * (head_scale(&call.layer.v_scales, fixed.block.head) *
                                      row_factor(&args.v_scales, place.row, fixed.block.head));
  if (place.partial_offset >= 0) {
    float* const sums = call.plan.partials + place.partial_offset + int64_t{place.states} * kLatentValueDims;
    sums[place.first_state + head] = natural.m;
    sums[place.states + place.first_state + head] = l;
    fixed.targets[r] = place.partial_offset + int64_t{place.first_state + head} * kLatentValueDims;
  } else {
    const float* const sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    scale *= final_scale(natural.m, l, sink);
    if (args.lse != nullptr) {
      args.lse[lse_element(args, place.row, place.token, head)] = final_lse(natural.m, l, sink);
    }
    fixed.targets[r] = out_element(args, place.row, place.token, head);
  }
  fixed.scales[r] = l == 0.0f ? 0.0f : scale;
}

// Ends the work of a scoring warpgroup. t: the number that its next tile would have, if there were one. The warpgroup
// that ends last finishes the rows.
__device__ __forceinline__ void end_latent_scores(const LatentState& state, int32_t group, int32_t t, bool is_last,
                                                  int32_t first_row, const WgmmaSums& sums) {
  LatentSlot& slot = slot_of(state, t);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float l = sum_of_row(sums.l[half]);
    if (state.lane % 4 == 0) {
      slot.m[first_row + half * 8] = sums.m[half];
      slot.alphas[first_row + half * 8] = l;
    }
  }
  if (is_last) {
    sync_threads_of<kWarpgroupThreads>(1 + group);
    wait_phase(&slot_of(state, t - 1).scored, latent_phase(t - 1));
    const int32_t r = state.thread % kWarpgroupThreads;
    if (r < state.rows) finish_latent_row(state, r);
  }
  leave_slot(state, &slot.scored);
}

// Scores the tiles of a slot. group: the number of the slot, and of the warpgroup among those that score. walk: the
// search for tiles, which has started to load the first tile.
template <class T, class Walk>
__device__ __forceinline__ void score_latent_tiles(const LatentState& state, int32_t group, Walk* walk) {
  LatentSlot& slot = state.fixed->slots[group];
  const WgmmaShape& shape = state.call->shape;
  const float scale = state.call->attend.exp2_scale;
  const int32_t thread = state.thread % kWarpgroupThreads;
  const int32_t first_row = thread / kWarpSize * kMmaRows + state.lane / 4;
  const uint32_t q = shared_address(state.shared + shape.q_at);
  WgmmaSums sums = {{-INFINITY, -INFINITY}, {}};
  float s[kLatentTileKeys / 2];
  for (int32_t t = group;; t += kScoringGroups) {
    wait_for_load(state, slot, group, 0, latent_phase(t), walk);
    const LatentTile tile = slot.tile;
    if (tile.begin < 0) {
      end_latent_scores(state, group, t, tile.begin == kLastSlot, first_row, sums);
      break;
    }
    begin_latent_scores<T>(state, q, shared_address(state.shared + tile.at), slot, group, latent_phase(t), walk, s);
    wait_products<0>();
    hold_results(s);
    score_tile(state, tile.begin, tile.is_full != 0, first_row, s);
    float largest[2] = {largest_of_row(s, 0, -INFINITY), largest_of_row(s, 1, -INFINITY)};
    const LatentMaxima before = maxima_before(state, t, first_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = fmaxf(largest[half], before.of[half]);
      if (state.lane % 4 == 0) slot.m[first_row + half * 8] = largest[half];
    }
    leave_slot(state, &slot.known);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float alpha = softmax_latent_row(scale, before.of[half], largest[half], half, s, sums);
      if (state.lane % 4 == 0) slot.alphas[first_row + half * 8] = alpha;
    }
    // All four warps must have read the last dims of their keys before P overwrites these dims.
    sync_threads_of<kWarpgroupThreads>(1 + group);
    // The tile is read again, because registers are few.
    store_probabilities<T>(state, slot.tile.at + kLatentValuePanels * kLatentPanelBytes, first_row, s);
    if (slot.tile.is_full == 0) clean_values<T>(state, slot);
    publish_writes();
    leave_slot(state, &slot.scored);
    if (!kByBoxes<Walk> || thread < kWarpSize) bring_latent_tile(state, group, walk);
  }
}

// ---- Values: two warpgroups ----------------------------------------------------------------------

// A thread's part of its warpgroup's columns of o.
struct LatentColumns {
  WgmmaRows<kLatentProductColumns> parts[kLatentParts];
};

// Starts the products of o += P V for the columns at v, as one group for each kLatentProductColumns columns.
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
    close_products();
  }
}

__device__ __forceinline__ void hold_columns(LatentColumns& columns) {
#pragma unroll
  for (int part = 0; part < kLatentParts; ++part) hold_results(columns.parts[part].o);
}

// Writes a row of the warpgroup's columns of o to its target. All lanes of a warp call it.
__device__ __forceinline__ void store_latent_row(const LatentState& state, int32_t r, int32_t group, const float* row) {
  const AttendCall& call = state.call->attend;
  const bool is_partial = state.fixed->places[r].partial_offset >= 0;
  const Type type = is_partial ? Type::kF32 : type_of(call.args.out.dtype);
  const int64_t at = state.fixed->targets[r] + group * kLatentColumns;
  if (type == Type::kF32) {
    float* const target = (is_partial ? call.plan.partials : static_cast<float*>(call.args.out.data)) + at;
    if (reinterpret_cast<uint64_t>(target) % 16 == 0) {
#pragma unroll
      for (int32_t c = state.lane * 4; c < kLatentColumns; c += kWarpSize * 4) {
        float four[4];
        memcpy(four, __builtin_assume_aligned(static_cast<const void*>(row + c), 16), sizeof four);
        memcpy(__builtin_assume_aligned(static_cast<void*>(target + c), 16), four, sizeof four);
      }
    } else {
      for (int32_t c = state.lane; c < kLatentColumns; c += kWarpSize) target[c] = row[c];
    }
    return;
  }
  uint16_t* const target = static_cast<uint16_t*>(call.args.out.data) + at;
  const auto pair = [type](float low, float high) {
    return type == Type::kF16 ? pack(F16{}, low, high) : pack(Bf16{}, low, high);
  };
  if (reinterpret_cast<uint64_t>(target) % 16 == 0) {
    static_assert(kLatentColumns == kWarpSize * 8);
    float eight[8];
    uint32_t words[4];
    memcpy(eight, __builtin_assume_aligned(static_cast<const void*>(row + state.lane * 8), 16), sizeof eight);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = pair(eight[i * 2], eight[i * 2 + 1]);
    memcpy(__builtin_assume_aligned(static_cast<void*>(target + state.lane * 8), 16), words, sizeof words);
  } else {
    for (int32_t c = state.lane; c < kLatentColumns; c += kWarpSize) {
      target[c] = static_cast<uint16_t>(pair(row[c], 0.0f));
    }
  }
}

// Adds NaN and infinity in V to those of the rows [begin, end) that see their keys. rows: the warpgroup's columns of o,
// from row 0 on. Without softcap, the weight of such a value is 0 or NaN. All lanes of a warp call it.
template <class T, class Walk>
__device__ __forceinline__ void add_odd_values(const LatentState& state, int32_t group, int32_t begin, int32_t end,
                                               int32_t pitch, float* rows) {
  const LatentFixed& fixed = *state.fixed;
#pragma unroll 1
  for (uint32_t key = fixed.keys_end - fixed.odd_keys; key < fixed.keys_end; ++key) {
    uint32_t sees = 0;  // a bit for each row
#pragma unroll 1
    for (int32_t r = begin; r < end; ++r) {
      if (sees_key(&fixed.tree, &fixed.masks[r], static_cast<int32_t>(key))) sees |= 1u << (r - begin);
    }
    if (sees == 0) continue;
    const unsigned char* const values = latent_value_row<kHasLists<Walk>>(state, key);
#pragma unroll 1
    for (int32_t c = state.lane; c < kLatentColumns; c += kWarpSize) {
      const T element = latent_value<T, kIsPacked<Walk>>(values, group * kLatentColumns + c);
      if (not_finite(T{}, element.bits) == 0) continue;
      const float odd = state.call->attend.args.softcap != 0.0 ? to_float(element) : NAN;
#pragma unroll 1
      for (int32_t r = begin; r < end; ++r) {
        if (((sees >> (r - begin)) & 1u) != 0) rows[r * pitch + c] += odd;
      }
    }
  }
  __syncwarp();
}

// Writes the warpgroup's columns of o. The columns are first copied to a slot whose tile is no longer needed. So whole
// cache lines are written to memory, by few instructions. (The code runs only once, so fetching each instruction takes
// time.) All warps of both warpgroups must have multiplied the last tile.
template <class T, class Walk>
__device__ __forceinline__ void store_latent_columns(const LatentState& state, const LatentColumns& columns,
                                                     int32_t group, int32_t first_row) {
  constexpr int32_t kPitch = kLatentColumns + 8;  // padded, so that rows lie in different banks
  static_assert(kWarpgroupRows * kPitch * static_cast<int32_t>(sizeof(float)) <= kLatentTileBytes);
  float* const rows = reinterpret_cast<float*>(state.shared + state.fixed->slots[group].tile.at);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = state.fixed->scales[first_row + half * 8];
    float* const row = rows + (first_row + half * 8) * kPitch + state.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kLatentColumns / 8; ++i) {
      const auto& o = columns.parts[i / (kLatentProductColumns / 8)].o;
      const int j = i % (kLatentProductColumns / 8) * 4 + half * 2;
      const float pair[2] = {o[j] * scale, o[j + 1] * scale};
      memcpy(__builtin_assume_aligned(static_cast<void*>(row + i * 8), sizeof pair), pair, sizeof pair);
    }
  }
  __syncwarp();
  const int32_t begin = state.thread % kWarpgroupThreads / kWarpSize * kMmaRows;
  const int32_t end = begin + kMmaRows < state.rows ? begin + kMmaRows : state.rows;
  if (state.fixed->odd_keys > 0) add_odd_values<T, Walk>(state, group, begin, end, kPitch, rows);
#pragma unroll 1
  for (int32_t r = begin; r < end; ++r) store_latent_row(state, r, group, rows + r * kPitch);
}

// Adds all tiles to o. group: 0 or 1, the half of o's columns that the warpgroup computes.
template <class T, class Walk>
__device__ __forceinline__ void add_latent_tiles(const LatentState& state, int32_t group) {
  const uint32_t values_at = static_cast<uint32_t>(group * (kLatentColumns / kPanelDims) * kLatentPanelBytes);
  const int32_t first_row = state.thread % kWarpgroupThreads / kWarpSize * kMmaRows + state.lane / 4;
  LatentColumns columns = {};
  int32_t t = 0;
  for (;; ++t) {
    LatentSlot& slot = slot_of(state, t);
    if (kByBoxes<Walk>) {
      for (uint64_t& full : slot.full) wait_phase(&full, latent_phase(t));  // makes the writes of TMA visible
    }
    wait_phase(&slot.scored, latent_phase(t));
    if (slot.tile.begin < 0) break;
    const uint32_t tile = shared_address(state.shared + slot.tile.at);
    const float alpha[2] = {slot.alphas[first_row], slot.alphas[first_row + 8]};
    if (__ballot_sync(kAllLanes, alpha[0] != 1.0f || alpha[1] != 1.0f) != 0) {
#pragma unroll
      for (int i = 0; i < kLatentColumns / 2; ++i) {
        columns.parts[i / (kLatentProductColumns / 2)].o[i % (kLatentProductColumns / 2)] *= alpha[i / 2 % 2];
      }
    }
    hold_columns(columns);  // the products change these registers
    begin_products();
    begin_latent_values<T>(tile + kLatentValuePanels * kLatentPanelBytes, tile + values_at, columns);
    wait_products<1>();
    leave_slot(state, &slot.empty[0]);
    wait_products<0>();
    hold_columns(columns);
    leave_slot(state, &slot.empty[1]);
  }
  wait_phase(&slot_of(state, t + 1).scored, latent_phase(t + 1));  // the other scoring warpgroup has ended too
  sync_threads_of<kAddingGroups * kWarpgroupThreads>(1 + kScoringGroups);
  store_latent_columns<T, Walk>(state, columns, group, first_row);
}

template <class T, class Walk>
__device__ __forceinline__ void attend_latent_by_warpgroups(const WgmmaCall& call) {
  constexpr bool kBoxes = kByBoxes<Walk>;
  {
    LatentState state;
    if (!begin_wgmma_block(call, &state)) return;
    begin_latent_rows<kBoxes>(state);
  }
  __syncthreads();
  const LatentState state = state_of_block(call);
  const int32_t warpgroup = state.thread / kWarpgroupThreads;
  Walk walk = {};
  const auto bring_first_tile = [&] {
    if (warpgroup >= kScoringGroups || (kBoxes && state.thread % kWarpgroupThreads >= kWarpSize)) return;
    begin_walk(state, warpgroup, &walk);
    bring_latent_tile(state, warpgroup, &walk);
  };
  if (!kBoxes) bring_first_tile();
  LatentChunks chunks = load_latent_queries(state);
  if (kBoxes) bring_first_tile();  // q is in flight while pages are looked up; without TMA, registers are too few
  store_latent_queries<T>(state, chunks);
  if (warpgroup < kScoringGroups) {
    give_registers<kRegistersToScore>();
    score_latent_tiles<T>(state, warpgroup, &walk);
  } else {
    take_registers<kRegistersToAdd>();
    add_latent_tiles<T, Walk>(state, warpgroup - kScoringGroups);
  }
}

// kListed: the call has lists of keys. kPacked: the rows are those of fp8_ds_mla, and T is Bf16. Only code compiled for
// sm_90a has these instructions. In code for other architectures, the kernel is empty (has_wgmma_image).
template <class T, bool kListed, bool kPacked>
__global__ void __launch_bounds__(kLatentThreads, 1)
    attend_wgmma_latent_kernel(const __grid_constant__ WgmmaCall call) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  attend_latent_by_warpgroups<T, LatentWalkOf<kListed, kPacked>>(call);
#endif
}

// type: of q. packed: the rows are those of fp8_ds_mla.
WgmmaKernel wgmma_latent_kernel(Type type, bool listed, bool packed);

}  // namespace kvc::kernels::cuda

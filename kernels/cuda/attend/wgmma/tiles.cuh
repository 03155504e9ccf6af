// What attention by warpgroups does before the products: it finds the rows of the block, loads their queries, and loads
// tiles of K and V. One warp loads tiles by TMA. Then other warps may change them (attend/wgmma/convert.cuh).
//
// K of tile t is in slot t % stages of K, and V is in slot t % stages of V. Each slot has barriers:
//   full    of K and of V: the bytes have arrived
//   ready   of V: NaN and infinity are replaced
//   empty   of K and of V: every consumer warp has read the slot
// 8-bit tiles arrive as stored in slots of their own, alternately of K and of V, with the barriers `raw_full` and
// `raw_empty`. After they are dequantised, `full` of K and `ready` of V are signalled.
//
// The producer warp finds the boxes with a key that some row sees. Each lane looks up one box. Only these boxes are
// copied, and tiles without such a box are skipped. Other boxes of a tile, and the places of keys that no row sees, may
// hold any bits. The scores of these keys are replaced by -inf, so p is 0. NaN and infinity in their V are replaced
// too, so p V is 0. The tile after the last one has begin -1.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/convert.h"
#include "kernels/common/mask.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/common/plan.h"
#include "kernels/cuda/attend/common/queries.cuh"
#include "kernels/cuda/attend/wgmma/instructions.cuh"
#include "kernels/cuda/attend/wgmma/layout.h"
#include "kernels/cuda/attend/wgmma/plan.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

struct WgmmaCall {
  AttendCall attend;
  WgmmaShape shape;
  int32_t k_heads_first, v_heads_first;
  int32_t has_units;  // scores are multiplied by scales of q or K
  // The number of thread blocks for each block of the plan. It is 2 if a kernel of 64 rows computes a block of
  // kWideRows in two halves. With lists, each thread block computes rows of one query.
  int32_t parts;
  CUtensorMap k_map, v_map;
};
using WgmmaKernel = void (*)(WgmmaCall);

constexpr int32_t kMostStages = 4, kMostTileKeys = 128, kMostRowsOfBlock = kWideRows.rows;

// The properties of a tile, kept until its products are done. The producer is at most kMostStages + 3 tiles ahead of
// the products.
constexpr int32_t kKnownTiles = 8;
struct WgmmaTile {
  int32_t begin;               // the first key; -1: there is no tile
  int32_t is_full;             // every row sees every key
  int32_t has_odd;             // V had NaN or infinity, which are replaced by zero
  uint8_t odd[kMostTileKeys];  // for each key: V had NaN or infinity
};

// The fixed shared memory of a block with at most kRows rows.
template <int32_t kRows>
struct WgmmaRowsFixed {
  kvc_backend_attend args;
  QueryMask masks[kRows];
  QueryPlace places[kRows];
  KeyTree tree;
  float units[kRows], slopes[kRows];
  uint32_t keys_begin, keys_end;     // this range has all keys that any row sees
  uint32_t full_begin, full_end;     // all rows see all keys of this range
  uint32_t gaps[kRows / kWarpSize];  // bit r: the keys of row r and of row r + 1 do not form one range
};

struct WgmmaFixed : WgmmaRowsFixed<kMostRowsOfBlock> {
  uint64_t k_full[kMostStages], v_full[kMostStages], v_ready[kMostStages], k_empty[kMostStages], v_empty[kMostStages];
  uint64_t raw_full[kRawStages], raw_empty[kRawStages];
  WgmmaTile tiles[kKnownTiles];
};

// A thread's view of its block. Fixed: WgmmaFixed, or LatentFixed for latent rows.
template <class Fixed>
struct WgmmaStateOf {
  const WgmmaCall* call;
  Fixed* fixed;
  unsigned char* shared;
  const kvc_backend_item* item;
  AttendBlock block;
  int32_t rows, group, warp, lane, thread;
};
using WgmmaState = WgmmaStateOf<WgmmaFixed>;

// An instance of the kernel: its type and dims, and the layout of its tiles in shared memory. kStoredBits: the number
// of bits of an element of K and V in the pools, 16 or 8.
template <class T, int kDimsOfK, int kDimsOfV, int kStoredBits>
struct WgmmaTiles {
  using Type = T;
  static constexpr bool kRaw = kStoredBits == 8;
  using Element = std::conditional_t<kRaw, uint8_t, T>;  // an element in the pools
  static constexpr int32_t kDims = kDimsOfK, kValueDims = kDimsOfV;
  static constexpr int32_t kKeys = wgmma_tile_keys(kValueDims);
  static constexpr int32_t kStages = wgmma_stages(kDims), kValueStages = wgmma_value_stages(kDims, kRaw);
  static constexpr int32_t kPanelBytes = kKeys * kPanelPitch, kQueryPanelBytes = kMostRowsOfBlock * kPanelPitch;
  static constexpr int32_t kKeyBytes = kDims / kPanelDims * kPanelBytes;         // a tile of K
  static constexpr int32_t kValueBytes = kValueDims / kPanelDims * kPanelBytes;  // a tile of V
  static constexpr int32_t kRawBytes = kKeys * kDims;                            // a tile as stored
  // The number of warps that convert: all warps except the producer warp and the consumer warps.
  static constexpr int32_t kConvertingWarps =
      wgmma_threads(kRaw) / kWarpSize - kWarpgroups * kWarpgroupThreads / kWarpSize - 1;
  static_assert(kStages <= kMostStages && kValueStages <= kMostStages && kMostStages + 3 <= kKnownTiles);
  static_assert(kKeys <= kMostTileKeys && (!kRaw || kDims == kValueDims));

  // For K of tile t: slot(t) is its slot. full(t) is the parity of the phase in which the slot holds K of the tile.
  // empty(t) is the parity of the phase in which the slot is free for it. The functions for V are named value_.
  static __device__ __forceinline__ int32_t slot(int32_t t) { return t % kStages; }
  static __device__ __forceinline__ uint32_t full(int32_t t) { return static_cast<uint32_t>(t / kStages) & 1u; }
  static __device__ __forceinline__ uint32_t empty(int32_t t) { return full(t) ^ 1u; }
  static __device__ __forceinline__ int32_t value_slot(int32_t t) { return t % kValueStages; }
  static __device__ __forceinline__ uint32_t value_full(int32_t t) {
    return static_cast<uint32_t>(t / kValueStages) & 1u;
  }
  static __device__ __forceinline__ uint32_t value_empty(int32_t t) { return value_full(t) ^ 1u; }
  static __device__ __forceinline__ WgmmaTile& of(const WgmmaState& state, int32_t t) {
    return state.fixed->tiles[t % kKnownTiles];
  }
  // The index of K (raw_keys) and of V (raw_values) of tile t among the tiles as stored. K of tile t + 1 is loaded
  // before V of tile t.
  static __device__ __forceinline__ int32_t raw_keys(int32_t t) { return t == 0 ? 0 : 2 * t - 1; }
  static __device__ __forceinline__ int32_t raw_values(int32_t t) { return 2 * t + 2; }
  // The slot of tile i among those as stored, and the parities of its barriers.
  static __device__ __forceinline__ int32_t raw_slot(int32_t i) { return i % kRawStages; }
  static __device__ __forceinline__ uint32_t raw_full(int32_t i) { return static_cast<uint32_t>(i / kRawStages) & 1u; }
  static __device__ __forceinline__ uint32_t raw_empty(int32_t i) { return raw_full(i) ^ 1u; }
};

// The query head of row r.
template <class State>
__device__ __forceinline__ int32_t head_of_row(const State& state, int32_t r) {
  return state.block.head * state.group + (state.block.row_begin + r) % state.group;
}

// Finds the mask, the place and the scale of row r, and its ALiBi slope.
template <class State>
__device__ __forceinline__ void begin_wgmma_row(const State& state, int32_t r) {
  auto& fixed = *state.fixed;
  const AttendCall& call = state.call->attend;
  find_row(call, *state.item, state.block, state.group, r, &fixed);
  const int32_t head = head_of_row(state, r);
  fixed.slopes[r] = call.args.alibi_slopes == nullptr
                        ? 0.0f
                        : call.args.alibi_slopes[fixed.places[r].row * call.args.alibi_row_stride + head];
}

// Whether the keys of row r and of the next row form one range.
template <class State>
__device__ __forceinline__ bool touches_next(const State& state, int32_t r) {
  const KeyRange a = state.fixed->masks[r].keys;
  if (a.begin >= a.end) return false;
  if (r + 1 >= state.rows) return true;
  const KeyRange b = state.fixed->masks[r + 1].keys;
  return b.begin < b.end && b.begin <= a.end && a.begin <= b.end;
}

// Fills `gaps`. One thread for each of the kRows rows must call it.
template <class State>
__device__ __forceinline__ void find_gaps(const State& state) {
  const bool gap = state.thread < state.rows && !touches_next(state, state.thread);
  const uint32_t gaps = __ballot_sync(kAllLanes, gap);
  if (state.lane == 0) state.fixed->gaps[state.warp] = gaps;
}

// Finds the masks, places and scales of all rows of the block, at most kRows, and the keys that they see. Thread 0 has
// called point_to_call. All threads call it.
template <int32_t kRows, class State>
__device__ __forceinline__ void find_wgmma_rows(const State& state) {
  __syncthreads();
  if (state.thread < state.rows) begin_wgmma_row(state, state.thread);
  __syncthreads();
  if (state.warp < kRows / kWarpSize) {
    find_gaps(state);
  } else if (state.warp == kRows / kWarpSize) {
    find_key_bounds(state.fixed, state.rows, state.lane);
  }
}

// Initialises the barriers, and finds the rows of the block. All threads call it.
template <class Tiles>
__device__ __forceinline__ void begin_wgmma_rows(const WgmmaState& state) {
  WgmmaFixed& fixed = *state.fixed;
  if (state.thread == 0) point_to_call(state.call->attend, *state.item, &fixed);
  if (state.thread == kWarpSize) {                                   // a thread of another warp than thread 0
    const uint32_t computing = state.rows > kWarpgroupRows ? 8 : 4;  // the number of consumer warps
    for (int32_t i = 0; i < Tiles::kStages; ++i) {
      init_barrier(&fixed.k_full[i], Tiles::kRaw ? Tiles::kConvertingWarps : 1);
      init_barrier(&fixed.k_empty[i], computing);
    }
    for (int32_t i = 0; i < Tiles::kValueStages; ++i) {
      init_barrier(&fixed.v_full[i], 1);
      init_barrier(&fixed.v_ready[i], Tiles::kConvertingWarps);
      init_barrier(&fixed.v_empty[i], computing);
    }
    for (int32_t i = 0; Tiles::kRaw && i < kRawStages; ++i) {
      init_barrier(&fixed.raw_full[i], 1);
      init_barrier(&fixed.raw_empty[i], Tiles::kConvertingWarps);
    }
    publish_barriers();
    prefetch_map(&state.call->k_map);
    prefetch_map(&state.call->v_map);
  }
  find_wgmma_rows<kMostRowsOfBlock>(state);
}

// Whether q can be copied unchanged: aligned to 16 bytes, not rotated, and in one tensor.
__device__ __forceinline__ bool has_plain_queries(const AttendCall& call, const kvc_backend_item& item) {
  const kvc_backend_attend& args = call.args;
  const float* const cos_sin = item.part == KVC_BACKEND_PART_SINKS ? args.cos_sin_sinks : args.cos_sin;
  if (args.qv.data != nullptr || (cos_sin != nullptr && call.layer.rope_dim > 0)) return false;
  const uint64_t strides = static_cast<uint64_t>(args.q_row_stride | args.q.token_stride | args.q.head_stride) * 2;
  return (strides | reinterpret_cast<uint64_t>(args.q.data)) % 16 == 0;
}

// Writes the queries of kWarpgroupRows rows, from row0 on, to shared memory: rotated, and times the sign of the scale.
// Rows beyond the block's last row are zeros. All threads of a warpgroup call it. Tiles: as WgmmaTiles.
template <class Tiles, class State>
__device__ __forceinline__ void write_queries(const State& state, int32_t row0) {
  const AttendCall& call = state.call->attend;
  const int32_t thread = state.thread % kWarpgroupThreads;
  unsigned char* const panels = state.shared + state.call->shape.q_at;
  if (has_plain_queries(call, *state.item)) {
    constexpr int32_t kEach = Tiles::kDims / 8, kChunks = kWarpgroupRows * kEach, kAtOnce = 4;
    static_assert(kChunks % (kAtOnce * kWarpgroupThreads) == 0);
    const uint32_t flip = call.q_sign < 0.0f ? 0x80008000u : 0u, keep = call.q_sign == 0.0f ? 0u : ~0u;
#pragma unroll 1
    for (int32_t begin = thread; begin < kChunks; begin += kAtOnce * kWarpgroupThreads) {
      uint32_t words[kAtOnce][4] = {};
#pragma unroll
      for (int32_t j = 0; j < kAtOnce; ++j) {
        const int32_t i = begin + j * kWarpgroupThreads, r = row0 + i / kEach;
        if (r >= state.rows) continue;
        const QueryPlace& place = state.fixed->places[r];
        const int64_t element = place.row * call.args.q_row_stride + place.token * call.args.q.token_stride +
                                head_of_row(state, r) * call.args.q.head_stride + i % kEach * 8;
        const unsigned char* const source = static_cast<const unsigned char*>(call.args.q.data) + element * 2;
        memcpy(words[j], __builtin_assume_aligned(source, 16), sizeof words[j]);
      }
#pragma unroll
      for (int32_t j = 0; j < kAtOnce; ++j) {
        const int32_t i = begin + j * kWarpgroupThreads, r = row0 + i / kEach, chunk = i % kEach;
#pragma unroll
        for (uint32_t& word : words[j]) word = (word ^ flip) & keep;
        unsigned char* const target =
            panels + chunk / 8 * Tiles::kQueryPanelBytes + swizzled(r, chunk % 8, kPanelPitch);
        memcpy(__builtin_assume_aligned(target, 16), words[j], sizeof words[j]);
      }
    }
  } else {
    constexpr int32_t kEach = Tiles::kDims / 2;
#pragma unroll 1
    for (int32_t i = thread; i < kWarpgroupRows * kEach; i += kWarpgroupThreads) {
      const int32_t r = row0 + i / kEach, d = i % kEach * 2;
      float low = 0.0f, high = 0.0f;
      if (r < state.rows) {
        const QueryPlace& place = state.fixed->places[r];
        low = attended_query(call, *state.item, place, head_of_row(state, r), d);
        high = attended_query(call, *state.item, place, head_of_row(state, r), d + 1);
      }
      const uint32_t word = pack(typename Tiles::Type{}, low * call.q_sign, high * call.q_sign);
      unsigned char* const target =
          panels + d / kPanelDims * Tiles::kQueryPanelBytes + swizzled(r, d % kPanelDims / 8, kPanelPitch) + d % 8 * 2;
      memcpy(__builtin_assume_aligned(target, 4), &word, sizeof word);
    }
  }
}

// Writes the queries of a warpgroup's rows to shared memory, for its products.
template <class Tiles>
__device__ __forceinline__ void load_wgmma_queries(const WgmmaState& state, int32_t row0) {
  write_queries<Tiles>(state, row0);
  publish_writes();
}

// ---- Producer: one warp --------------------------------------------------------------------------

// A lane's box of a tile. needed: whether some row sees a key in the box. page, slot: where the box is in the pools.
struct BoxPlace {
  int32_t needed, page, slot;
};

template <class State>
__device__ __forceinline__ bool sees_any(const State& state, uint32_t begin, uint32_t end) {
  const auto& fixed = *state.fixed;
  uint32_t gaps = 0;
#pragma unroll
  for (const uint32_t of_warp : fixed.gaps) gaps |= of_warp;
  if (gaps == 0) return begin < fixed.keys_end && end > fixed.keys_begin;  // the keys of all rows form one range
  for (int32_t r = 0; r < state.rows; ++r) {
    const KeyRange keys = fixed.masks[r].keys;
    const uint32_t key_begin = static_cast<uint32_t>(keys.begin), key_end = static_cast<uint32_t>(keys.end);
    if (key_begin < key_end && begin < key_end && end > key_begin) return true;
  }
  return false;
}

template <class State>
__device__ __forceinline__ BoxPlace find_box(const State& state, PageCursor* cursor, uint32_t tile_begin,
                                             int32_t tile_keys, bool is_full) {
  const int32_t keys = state.call->shape.box_keys, page_size = state.call->attend.layer.page_size;
  const uint32_t begin = tile_begin + static_cast<uint32_t>(state.lane * keys);
  BoxPlace place = {0, 0, 0};
  if (state.lane * keys >= tile_keys) return place;
  if (!is_full && !sees_any(state, begin, begin + static_cast<uint32_t>(keys))) return place;
  place.needed = 1;
  place.page = page_at(cursor, static_cast<int32_t>(begin) / page_size);
  place.slot = static_cast<int32_t>(begin) % page_size;
  return place;
}

// Where a tile of K or V is copied to, and the barrier that counts its bytes.
struct TileRoom {
  unsigned char* tile;
  uint64_t* full;
};

// Waits until the slot for K, or for V, of tile t is empty. Calls must follow the order of loading.
template <class Tiles>
__device__ __forceinline__ TileRoom wait_for_room(const WgmmaState& state, int32_t t, bool values) {
  WgmmaFixed& fixed = *state.fixed;
  const WgmmaShape& shape = state.call->shape;
  if constexpr (Tiles::kRaw) {
    const int32_t i = values ? Tiles::raw_values(t) : Tiles::raw_keys(t), raw_slot = Tiles::raw_slot(i);
    wait_phase(&fixed.raw_empty[raw_slot], Tiles::raw_empty(i));
    return {state.shared + shape.raw_at + raw_slot * Tiles::kRawBytes, &fixed.raw_full[raw_slot]};
  }
  if (values) {
    const int32_t slot = Tiles::value_slot(t);
    wait_phase(&fixed.v_empty[slot], Tiles::value_empty(t));
    return {state.shared + shape.v_at + slot * Tiles::kValueBytes, &fixed.v_full[slot]};
  }
  const int32_t slot = Tiles::slot(t);
  wait_phase(&fixed.k_empty[slot], Tiles::empty(t));
  return {state.shared + shape.k_at + slot * Tiles::kKeyBytes, &fixed.k_full[slot]};
}

// The first key of a lane's box, counted from the box of lane 0. The boxes of 32 lanes are whole tiles.
__device__ __forceinline__ int32_t first_key_of_lane(const WgmmaState& state) {
  return state.lane * state.call->shape.box_keys;
}

// Starts the copies of the boxes of a tile of K or V.
template <class Tiles, int kDims>
__device__ __forceinline__ void begin_boxes(const WgmmaState& state, const CUtensorMap& map, int32_t heads_first,
                                            const BoxPlace& place, const TileRoom& room) {
  constexpr int32_t kBoxes = Tiles::kRaw ? 1 : kDims / kPanelDims;  // the number of boxes with the same keys
  constexpr int32_t kBoxPitch = Tiles::kRaw ? kDims : kPanelPitch;  // bytes of a key in one box
  const int32_t keys = state.call->shape.box_keys, lanes = __popc(__ballot_sync(kAllLanes, place.needed != 0));
  if (state.lane == 0) arrive_expecting(room.full, static_cast<uint32_t>(lanes * keys * kBoxes * kBoxPitch));
  __syncwarp();
  if (place.needed == 0) return;
  unsigned char* const target = room.tile + first_key_of_lane(state) % Tiles::kKeys * kBoxPitch;
  const int32_t inner = heads_first != 0 ? state.block.head : place.slot;
  const int32_t outer = heads_first != 0 ? place.slot : state.block.head;
#pragma unroll
  for (int i = 0; i < kBoxes; ++i) {
    begin_box(target + i * Tiles::kPanelBytes, &map, room.full, i * kPanelDims, inner, outer, place.page);
  }
}

// Does the work of the producer warp: loads all tiles. The lanes find 32 boxes at once, which may belong to several
// tiles. So the warp seldom waits for the page list.
template <class Tiles>
__device__ __forceinline__ void bring_tiles(const WgmmaState& state) {
  const WgmmaCall& call = *state.call;
  WgmmaFixed& fixed = *state.fixed;
  PageCursor cursor = pages_of_item(&call.attend.plan.arrays.tables, state.item);
  const int32_t keys_of_lanes = kWarpSize * call.shape.box_keys;
  BoxPlace of_values = {0, 0, 0};  // the lane's box of the previous tile, for V
  const auto bring_values = [&](int32_t t) {
    begin_boxes<Tiles, Tiles::kValueDims>(state, call.v_map, call.v_heads_first, of_values,
                                          wait_for_room<Tiles>(state, t, true));
  };
  const auto is_full = [&](uint32_t begin) {
    return begin >= fixed.full_begin && begin + Tiles::kKeys <= fixed.full_end;
  };
  int32_t t = 0;
  const uint32_t end = fixed.keys_end;
  for (uint32_t first = fixed.keys_begin / Tiles::kKeys * Tiles::kKeys; first < end;
       first += static_cast<uint32_t>(keys_of_lanes)) {
    const int32_t own_tile = first_key_of_lane(state) / Tiles::kKeys * Tiles::kKeys;
    const BoxPlace found =
        find_box(state, &cursor, first, keys_of_lanes, is_full(first + static_cast<uint32_t>(own_tile)));
    for (int32_t at = 0; at < keys_of_lanes && first + static_cast<uint32_t>(at) < end; at += Tiles::kKeys) {
      BoxPlace place = found;
      if (at != own_tile) place.needed = 0;
      if (__ballot_sync(kAllLanes, place.needed != 0) == 0) continue;
      const TileRoom room = wait_for_room<Tiles>(state, t, false);
      WgmmaTile& tile = Tiles::of(state, t);
      if (state.lane == 0) {
        const uint32_t begin = first + static_cast<uint32_t>(at);
        tile.begin = static_cast<int32_t>(begin);
        tile.is_full = is_full(begin) ? 1 : 0;
        tile.has_odd = 0;
      }
      memset(__builtin_assume_aligned(tile.odd + state.lane * 4, 4), 0, 4);
      __syncwarp();
      begin_boxes<Tiles, Tiles::kDims>(state, call.k_map, call.k_heads_first, place, room);
      if (t > 0) bring_values(t - 1);
      of_values = place;
      ++t;
    }
  }
  const TileRoom behind = wait_for_room<Tiles>(state, t, false);
  if (state.lane == 0) {
    Tiles::of(state, t).begin = -1;
    arrive(behind.full);
  }
  if (t > 0) bring_values(t - 1);
  if (Tiles::kRaw) return;  // the warps that dequantise stop at the barrier of K, so no warp waits for this V
  const TileRoom values_behind = wait_for_room<Tiles>(state, t, true);
  if (state.lane == 0) arrive(values_behind.full);
}

}  // namespace kvc::kernels::cuda

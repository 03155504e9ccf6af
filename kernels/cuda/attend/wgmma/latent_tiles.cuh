// How the tiles of a block of attend/wgmma/latent.cuh are copied to shared memory. Each scoring warpgroup copies the
// tiles of its slot, in two parts.
//
//   neighbours   The keys of a tile are slots of a few pages. The first warp of the warpgroup starts copies of boxes by
//                TMA. A lane looks up the page of some neighbouring keys, and starts all boxes of these keys.
//   lists        The slots of neighbouring keys need not be neighbours, so a box could have only 128 bytes of one key.
//                Instead, all 128 threads start copies of 16 bytes (cp.async), 36 for each thread and tile. A thread
//                copies one chunk of 16 bytes in every panel, for four keys. Eight neighbouring threads copy the 128
//                bytes that a key has in a panel. Places in shared memory follow the swizzle of TMA. Products read
//                shared memory by the asynchronous proxy, and these copies are ordinary writes. So each thread waits
//                for its own copies and publishes them. Then all threads of the warpgroup wait at a barrier before the
//                first product (wait_for_load).
//
// Rows of fp8_ds_mla are copied by all threads too, and then dequantised (latent_packed.cuh).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>

#include "kernels/common/page_walk.h"
#include "kernels/cuda/attend/common/call.cuh"
#include "kernels/cuda/attend/wgmma/latent_rows.cuh"

namespace kvc::kernels::cuda {

// ---- Neighbouring keys: one warp of each warpgroup that scores -------------------------------------

// Starts the copies of the boxes of part `load` of a tile. V's dims come from the pool of V, and the dims after them
// from the pool of K.
__device__ __forceinline__ void begin_copies(const LatentState& state, const BoxPlace& place, LatentSlot& slot,
                                             int32_t load) {
  const WgmmaCall& call = *state.call;
  uint64_t* const full = &slot.full[load];
  const bool is_last = load == kLatentLoads - 1;
  const int32_t keys = call.shape.box_keys, lanes = __popc(__ballot_sync(kAllLanes, place.needed != 0));
  if (state.lane == 0) {
    arrive_expecting(full, static_cast<uint32_t>(lanes * keys * (kPanelsOfLoad + (is_last ? 1 : 0)) * kPanelPitch));
  }
  __syncwarp();
  if (place.needed == 0) return;
  unsigned char* const target = state.shared + slot.tile.at + state.lane * keys * kPanelPitch;
  const auto begin_panel = [&](const CUtensorMap& map, int32_t heads_first, int32_t panel, int32_t dim) {
    const int32_t inner = heads_first != 0 ? state.block.head : place.slot;
    const int32_t outer = heads_first != 0 ? place.slot : state.block.head;
    begin_box(target + panel * kLatentPanelBytes, &map, full, dim, inner, outer, place.page);
  };
#pragma unroll
  for (int32_t i = 0; i < kPanelsOfLoad; ++i) {
    const int32_t panel = latent_panel(load, i);
    begin_panel(call.v_map, call.v_heads_first, panel, panel * kPanelDims);
  }
  if (is_last) begin_panel(call.k_map, call.k_heads_first, kLatentValuePanels, rotary_dims(call.attend.layer).first);
}

// Where the search for tiles of a slot continues. begin: the first key that was not searched. t: the number of tiles
// before `begin`, in both slots.
struct TileSearch {
  uint32_t begin;
  int32_t t;
};
__device__ __forceinline__ void begin_walk(const LatentState& state, int32_t, TileSearch* search) {
  *search = {state.fixed->keys_begin / kLatentTileKeys * kLatentTileKeys, 0};
}

// The page ids in leaf `index` of the item's page list. (A PageCursor would need more registers.)
struct PageLeaf {
  const int32_t* pages;
  int32_t index;
};
constexpr PageLeaf kNoLeaf = {nullptr, -1};

// The search for the tiles of a slot, and the leaf that was read last.
struct LatentWalk {
  TileSearch search;
  PageLeaf leaf;
};
__device__ __forceinline__ void begin_walk(const LatentState& state, int32_t number, LatentWalk* walk) {
  begin_walk(state, number, &walk->search);
  walk->leaf = kNoLeaf;
}

__device__ __forceinline__ bool is_full_tile(const LatentFixed& fixed, uint32_t begin) {
  return begin >= fixed.full_begin && begin + kLatentTileKeys <= fixed.full_end;
}

// The next tile of a slot. begin: its first key. found: there is such a tile. is_full: every row sees every key.
// is_next: if there is no tile, whether this slot ends before the other slot. phase: the parity with which the barriers
// `empty` of the slot are awaited.
struct LatentNext {
  uint32_t begin;
  bool found, is_full, is_next;
  uint32_t phase;
};

// Finds the next tile of slot `number`. The next search then begins after this tile.
__device__ __forceinline__ LatentNext next_tile(const LatentState& state, int32_t number, TileSearch* search) {
  const LatentFixed& fixed = *state.fixed;
  const uint32_t keys = kLatentTileKeys;
  LatentNext next = {};
  for (; search->begin < fixed.keys_end; search->begin += keys) {
    next.is_full = is_full_tile(fixed, search->begin);
    if (!next.is_full && !sees_any(state, search->begin, search->begin + keys)) continue;
    next.found = latent_slot(search->t) == number;
    if (next.found) break;
    ++search->t;
  }
  next.begin = search->begin;
  next.is_next = latent_slot(search->t) == number;
  next.phase = latent_phase(search->t + (next.is_next ? 0 : 1)) ^ 1u;
  if (next.found) {
    search->begin += keys;
    ++search->t;
  }
  return next;
}

__device__ __forceinline__ LatentNext next_tile(const LatentState& state, int32_t number, LatentWalk* walk) {
  return next_tile(state, number, &walk->search);
}

// Returns the page of entry `entry` of the item's page list.
__device__ __forceinline__ int32_t find_page(const LatentState& state, int32_t entry, PageLeaf* leaf) {
  const int32_t leaf_index = entry >> KVC_BACKEND_NODE_FANOUT_LOG2;
  if (leaf_index != leaf->index) {
    const PageCursor cursor = pages_of_item(&state.call->attend.plan.arrays.tables, state.item);
    *leaf = {page_leaf(&cursor, leaf_index), leaf_index};
  }
  return leaf->pages[entry & (KVC_BACKEND_NODE_FANOUT - 1)];
}

// Finds the lane's box of a tile.
__device__ __forceinline__ BoxPlace find_copies(const LatentState& state, const LatentNext& next, LatentWalk* walk) {
  const int32_t keys = state.call->shape.box_keys, page_size = state.call->attend.layer.page_size;
  const uint32_t begin = next.begin + static_cast<uint32_t>(state.lane * keys);
  if (state.lane * keys >= kLatentTileKeys) return {0, 0, 0};
  if (!next.is_full && !sees_any(state, begin, begin + static_cast<uint32_t>(keys))) return {0, 0, 0};
  const int32_t page = find_page(state, static_cast<int32_t>(begin) / page_size, &walk->leaf);
  return {1, page, static_cast<int32_t>(begin) % page_size};
}

__device__ __forceinline__ void wait_for_load(const LatentState&, LatentSlot& slot, int32_t, int32_t load,
                                              uint32_t phase, const LatentWalk*) {
  wait_phase(&slot.full[load], phase);
}

// ---- Lists of keys: all warps of each warpgroup that scores ----------------------------------------

// Where a thread of a scoring warpgroup continues. slots: those of the query's list (attend/common/lists.h). t: the
// number of the thread's next tile.
struct ListedWalk {
  const uint32_t* slots;
  int32_t t;
};
__device__ __forceinline__ void begin_walk(const LatentState& state, int32_t number, ListedWalk* walk) {
  const ListedKeys& listed = state.call->attend.listed;
  const int64_t list = list_of(listed, state.item->part, state.fixed->places[0].token, state.fixed->block.head);
  *walk = {listed.slots + list * listed.most, number};
}
// Every row sees the same places, so every tile between the first and the last is loaded.
__device__ __forceinline__ LatentNext next_tile(const LatentState& state, int32_t, ListedWalk* walk) {
  const LatentFixed& fixed = *state.fixed;
  const uint32_t keys = kLatentTileKeys;
  LatentNext next;
  next.begin = fixed.keys_begin / keys * keys + static_cast<uint32_t>(walk->t) * keys;
  next.found = next.begin < fixed.keys_end;
  next.is_full = is_full_tile(fixed, next.begin);
  next.is_next = walk->t == 0 || next.begin - keys < fixed.keys_end;
  next.phase = latent_phase(walk->t) ^ 1u;
  walk->t += kLatentStages;
  return next;
}

// A thread copies every kListedStep-th key of a tile, from key thread / kChunksOfPanel on. slots: the slots of these
// keys; kNoSlot for a place that the list does not have. values: for each key, the address of the thread's chunk in the
// first 64 dims.
constexpr int32_t kChunksOfPanel = kPanelPitch / 16, kListedStep = kWarpgroupThreads / kChunksOfPanel;
constexpr int32_t kKeysOfThread = kLatentTileKeys / kListedStep;
static_assert(kListedStep % kPatternRows == 0, "the swizzle permutes the chunks of all keys of a thread alike");
constexpr uint32_t kNoSlot = ~0u;
struct ListedChunks {
  uint32_t slots[kKeysOfThread];
  const unsigned char* values[kKeysOfThread];
};

// The row of a slot in a pool.
__device__ __forceinline__ const unsigned char* row_of_slot(const LatentState& state, const kvc_backend_pool& pool,
                                                            uint32_t slot) {
  const uint32_t page_size = static_cast<uint32_t>(state.call->attend.layer.page_size);
  return static_cast<const unsigned char*>(pool.data) + slot / page_size * pool.page_stride_bytes +
         state.fixed->block.head * pool.head_stride_bytes + slot % page_size * pool.slot_stride_bytes;
}
// Returns the address of the thread's chunk in the first 64 dims of the row of a slot. For kNoSlot, returns some
// address in the pool.
__device__ __forceinline__ const unsigned char* chunk_of_slot(const LatentState& state, const kvc_backend_pool& pool,
                                                              uint32_t slot) {
  if (slot == kNoSlot) return static_cast<const unsigned char*>(pool.data);
  return row_of_slot(state, pool, slot) + state.lane % kChunksOfPanel * 16;
}

// The first of the keys of a tile that a thread of a warpgroup copies.
__device__ __forceinline__ int32_t first_key_of(int32_t thread) { return thread / kChunksOfPanel; }

__device__ __forceinline__ ListedChunks find_copies(const LatentState& state, const LatentNext& next,
                                                    ListedWalk* walk) {
  const uint32_t first = next.begin + static_cast<uint32_t>(first_key_of(state.thread % kWarpgroupThreads));
  ListedChunks chunks;
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    const uint32_t place = first + static_cast<uint32_t>(i * kListedStep);
    const bool there = place >= state.fixed->keys_begin && place < state.fixed->keys_end;
    chunks.slots[i] = there ? walk->slots[place] : kNoSlot;
  }
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    chunks.values[i] = chunk_of_slot(state, state.call->attend.layer.v, chunks.slots[i]);
  }
  return chunks;
}

// Starts the copies of the thread's chunks in a part of a tile, as a group. Places that the list does not have become
// zeros.
__device__ __forceinline__ void begin_copies(const LatentState& state, const ListedChunks& chunks,
                                             const LatentSlot& slot, int32_t load) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  const int32_t row = first_key_of(state.thread % kWarpgroupThreads);
  unsigned char* const target = state.shared + slot.tile.at + swizzled(row, state.lane % kChunksOfPanel, kPanelPitch);
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    unsigned char* const target_row = target + i * kListedStep * kPanelPitch;
    const bool there = chunks.slots[i] != kNoSlot;
#pragma unroll
    for (int32_t j = 0; j < kPanelsOfLoad; ++j) {
      const int32_t panel = latent_panel(load, j);
      begin_copy(target_row + panel * kLatentPanelBytes, chunks.values[i] + panel * kPanelPitch, there);
    }
    if (load < kLatentLoads - 1) continue;
    begin_copy(target_row + kLatentValuePanels * kLatentPanelBytes,
               chunk_of_slot(state, layer.k, chunks.slots[i]) + rotary_dims(layer).first * 2, there);
  }
  close_copies();
}

// Waits for the thread's own copies of part `load`.
__device__ __forceinline__ void wait_for_copies(int32_t load) {
  static_assert(kLatentLoads == 2);
  if (load == 0) {
    wait_copies<1>();
  } else {
    wait_copies<0>();
  }
}
// Publishes the thread's writes to the tile, and waits for the other threads of the scoring warpgroup `group`.
__device__ __forceinline__ void meet_after_writes(int32_t group) {
  publish_writes();
  sync_threads_of<kWarpgroupThreads>(1 + group);
}

// Returns the address of V of a key that some row sees. key: with lists, a place in the list.
template <bool kListed>
__device__ __forceinline__ const unsigned char* latent_value_row(const LatentState& state, uint32_t key) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  if constexpr (kListed) {
    ListedWalk walk;
    begin_walk(state, 0, &walk);
    return row_of_slot(state, layer.v, walk.slots[key]);
  } else {
    const auto page_size = static_cast<uint32_t>(layer.page_size);
    PageCursor cursor = pages_of_item(&state.call->attend.plan.arrays.tables, state.item);
    const int64_t page = page_at(&cursor, static_cast<int32_t>(key / page_size));
    return static_cast<const unsigned char*>(layer.v.data) + page * layer.v.page_stride_bytes +
           state.fixed->block.head * layer.v.head_stride_bytes + key % page_size * layer.v.slot_stride_bytes;
  }
}

// Waits until a part of the slot's tile can be multiplied by the scoring warpgroup `group`. All its threads call it.
__device__ __forceinline__ void wait_for_load(const LatentState&, LatentSlot&, int32_t group, int32_t load, uint32_t,
                                              const ListedWalk*) {
  wait_for_copies(load);
  meet_after_writes(group);
}

}  // namespace kvc::kernels::cuda

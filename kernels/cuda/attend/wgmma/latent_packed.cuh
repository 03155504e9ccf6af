// Tiles of rows of fp8_ds_mla (attend/mma/plan.h) for attend/wgmma/latent.cuh. A row has 512 elements of float8_e4m3fn,
// four float32 scales, and 64 dims of bfloat16. Products read bfloat16. So all threads of a scoring warpgroup copy the
// tile as stored (cp.async), and then dequantise it in its place: element * scale, rounded.
//
//   copies       Shared memory has no room for a second tile. So stored bytes are copied to the tile itself: 16 stored
//                bytes become two chunks of the tile, and are copied to one of these two. Eight neighbouring threads
//                copy 128 bytes of a key. These bytes become two panels of 64 dims. A thread dequantises only what it
//                copied itself, so it waits for no other thread. Only the scales of a key are copied by one thread for
//                all eight. For each tile, a thread copies 16 chunks of float8 and 4 chunks of bfloat16. The dims of
//                bfloat16 are copied to their final place.
//   conversion   Two elements take 6 instructions: one to float16, two to float32, two products, and one to bfloat16.
//                The products and the conversion to bfloat16 round. The other instructions are exact. A thread converts
//                256 elements of a tile. Those of the second part are converted while the tensor cores multiply the
//                first part.
//   banks        Threads 4 to 7 of the eight use the second of the two chunks for bytes as stored, and convert the
//                second half of their bytes first. So neither the loads nor the stores of a warp have conflicts.
//
// Lower bounds: a tile adds 32 KiB of loads and 64 KiB of stores to shared memory, and saves 31 KiB of copies. These
// are 520 cycles more than for rows of bfloat16. The conversion of a tile takes about 900 instructions of each of the
// four warps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/decode/instructions.cuh"
#include "kernels/cuda/attend/wgmma/latent_tiles.cuh"

namespace kvc::kernels::cuda {

// A run is 128 stored bytes of a key. It has the dims of two panels, and one scale. A key has kRunsOfLoad runs in each
// part of a tile.
constexpr int32_t kRunPanels = 2, kRunsOfLoad = kPanelsOfLoad / kRunPanels;
static_assert(kRunPanels * kPanelDims == kChunksOfPanel * 16 && kDsMlaDims == kLatentKeyDims);
static_assert(kDsMlaRotaryAt - kDsMlaLatentDims == sizeof(PackedScales) && kDsMlaLatentDims == kLatentValueDims);
static_assert(kDsMlaScales == kLatentLoads * kRunsOfLoad);
// The number of the first panel of a run.
__device__ __forceinline__ int32_t panel_of_run(int32_t load, int32_t run) {
  return latent_panel(load, run * kRunPanels);
}

// Next: the walk that finds the tiles of a slot. is_loading: the last call of next_tile found a tile, so the slot will
// have a tile to dequantise.
template <class Next>
struct PackedWalk {
  Next next;
  bool is_loading;
};
template <class Next>
__device__ __forceinline__ void begin_walk(const LatentState& state, int32_t number, PackedWalk<Next>* walk) {
  begin_walk(state, number, &walk->next);
}

// Returns the number of the thread in its warpgroup. Values that depend on this number are computed again for each
// tile, because registers are few.
__device__ __forceinline__ int32_t number_in_group(const LatentState& state) {
  return hidden(state.thread) % kWarpgroupThreads;
}

// Finds the row of a key. Returns false if the tile does not have the key. With lists, `key` is a place in the list.
// Before the call, *row must be the begin of the pool.
__device__ __forceinline__ bool find_row_of_key(const LatentState& state, const LatentNext&, uint32_t key,
                                                const ListedWalk& walk, const unsigned char** row) {
  if (key < state.fixed->keys_begin || key >= state.fixed->keys_end) return false;
  *row = row_of_slot(state, state.call->attend.layer.k, walk.slots[key]);
  return true;
}
__device__ __forceinline__ bool find_row_of_key(const LatentState& state, const LatentNext& next, uint32_t key,
                                                const TileSearch&, const unsigned char** row) {
  const kvc_backend_layer& layer = state.call->attend.layer;
  if (!next.is_full && !sees_any(state, key, key + 1)) return false;
  const int32_t entry = static_cast<int32_t>(key) / layer.page_size, slot = static_cast<int32_t>(key) % layer.page_size;
  PageLeaf leaf = kNoLeaf;
  *row += find_page(state, entry, &leaf) * layer.k.page_stride_bytes +
          state.fixed->block.head * layer.k.head_stride_bytes + slot * layer.k.slot_stride_bytes;
  return true;
}

template <class Next>
__device__ __forceinline__ LatentNext next_tile(const LatentState& state, int32_t number, PackedWalk<Next>* walk) {
  const LatentNext next = next_tile(state, number, &walk->next);
  walk->is_loading = next.found;
  return next;
}

// The number of keys that a warp copies at once.
constexpr int kKeysAtOnce = kWarpSize / kChunksOfPanel;

// The rows of the thread's keys. there: bit i * kKeysAtOnce is set if the tile has key i. If not, rows[i] is any
// address of the pool.
struct PackedRows {
  const unsigned char* rows[kKeysOfThread];
  uint32_t there;
};

// Finds the thread's rows of a tile. A lane finds the row of one of the 16 keys that its warp copies.
template <class Next>
__device__ __forceinline__ PackedRows find_copies(const LatentState& state, const LatentNext& next,
                                                  PackedWalk<Next>* walk) {
  const int32_t thread = number_in_group(state), lane = thread % kWarpSize, own = lane % (kKeysAtOnce * kKeysOfThread);
  const int32_t key = thread / kWarpSize * kKeysAtOnce + own % kKeysAtOnce + own / kKeysAtOnce * kListedStep;
  const unsigned char* row = static_cast<const unsigned char*>(state.call->attend.layer.k.data);
  const bool there = find_row_of_key(state, next, next.begin + static_cast<uint32_t>(key), walk->next, &row);
  PackedRows found = {{}, __ballot_sync(kAllLanes, there)};
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    const int32_t finder = i * kKeysAtOnce + lane / kChunksOfPanel;
    found.rows[i] = reinterpret_cast<const unsigned char*>(
        __shfl_sync(kAllLanes, reinterpret_cast<unsigned long long>(row), finder));
  }
  found.there >>= lane / kChunksOfPanel;
  return found;
}

// Returns the place in a tile to which a thread copies its chunk of run 0 of its first key.
__device__ __forceinline__ int32_t place_as_stored(int32_t thread) {
  const int32_t chunk = thread % kChunksOfPanel, panel = chunk / (kChunksOfPanel / kRunPanels);
  const int32_t first = chunk % (kChunksOfPanel / kRunPanels) * 2;  // the first of the two chunks that it becomes
  return panel * kLatentPanelBytes + swizzled(first_key_of(thread), first + panel, kPanelPitch);
}

// Starts the thread's copies of a part of a tile, as a group. Keys that the tile does not have become zeros.
__device__ __forceinline__ void begin_copies(const LatentState& state, const PackedRows& found, LatentSlot& slot,
                                             int32_t load) {
  const int32_t thread = number_in_group(state), chunk = thread % kChunksOfPanel;
  unsigned char* const tile = state.shared + slot.tile.at;
  unsigned char* const target = tile + place_as_stored(thread);
  unsigned char* const rotary =
      tile + kLatentValuePanels * kLatentPanelBytes + swizzled(first_key_of(thread), chunk, kPanelPitch);
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    const int32_t key_at = i * kListedStep * kPanelPitch;
    const bool there = (found.there >> (i * kKeysAtOnce) & 1u) != 0;
    const unsigned char* const row = found.rows[i] + chunk * 16;
#pragma unroll
    for (int32_t run = 0; run < kRunsOfLoad; ++run) {
      const int32_t panel = panel_of_run(load, run);
      begin_copy(target + key_at + panel * kLatentPanelBytes, row + panel * kPanelDims, there);
    }
    if (load == 0 && chunk == 0) {
      begin_copy(&slot.scales[first_key_of(thread) + i * kListedStep], row + kDsMlaLatentDims, there);
    }
    if (load == kLatentLoads - 1) begin_copy(rotary + key_at, row + kDsMlaRotaryAt, there);
  }
  close_copies();
}

// Dequantises eight elements, which become a chunk of the tile.
__device__ __forceinline__ void dequantise_eight(const uint32_t (&from)[2], float scale, uint32_t (&to)[4]) {
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t pairs[2];
    pairs_of_e4m3(from[j], &pairs[0], &pairs[1]);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float low, high;
      floats_of_pair(pairs[k], &low, &high);
      to[j * 2 + k] = pack(Bf16{}, low * scale, high * scale);
    }
  }
}

// Dequantises what the thread copied of part `load` of a tile, one key at a time. (Two keys would need more registers.)
__device__ __forceinline__ void dequantise_load(const LatentState& state, const LatentSlot& slot, int32_t load) {
  const int32_t thread = number_in_group(state);
  const int32_t upper = thread % kChunksOfPanel / (kChunksOfPanel / kRunPanels) * 8;
  unsigned char* const panels = state.shared + slot.tile.at + panel_of_run(load, 0) * kLatentPanelBytes;
  const int32_t at = place_as_stored(thread);
  unsigned char* const targets[2] = {panels + at, panels + (at ^ 16)};  // the two chunks that a chunk becomes
  const unsigned char* const sources[2] = {targets[0] + upper, targets[0] + (8 - upper)};
  const float* const scales_of = slot.scales[first_key_of(thread)].of + load;
#pragma unroll
  for (int i = 0; i < kKeysOfThread; ++i) {
    uint32_t from[kRunsOfLoad][2][2];
    float scales[kRunsOfLoad];
    const auto later = [i](int run) {  // the distance in bytes from run 0 of the first key
      return i * kListedStep * kPanelPitch + (panel_of_run(0, run) - panel_of_run(0, 0)) * kLatentPanelBytes;
    };
#pragma unroll
    for (int run = 0; run < kRunsOfLoad; ++run) {
      scales[run] = scales_of[i * kListedStep * kDsMlaScales + run * kLatentLoads];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        memcpy(from[run][half], __builtin_assume_aligned(sources[half] + later(run), 8), 8);
      }
    }
#pragma unroll
    for (int run = 0; run < kRunsOfLoad; ++run) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t to[4];
        dequantise_eight(from[run][half], scales[run], to);
        memcpy(__builtin_assume_aligned(targets[half] + later(run), 16), to, sizeof to);
      }
    }
  }
}

// Dim `dim` of a row of V, as the products read it. kPacked: the row is of fp8_ds_mla, and T is Bf16.
template <class T, bool kPacked>
__device__ __forceinline__ T latent_value(const unsigned char* row, int32_t dim) {
  T value;
  if constexpr (kPacked) {
    uint32_t low, high;
    pairs_of_e4m3(row[dim], &low, &high);
    float element, zero;
    floats_of_pair(low, &element, &zero);
    value.bits = static_cast<uint16_t>(pack(T{}, element * ds_mla_scale(row, dim), zero));
  } else {
    memcpy(&value, row + dim * 2, sizeof value);
  }
  return value;
}

// Waits until a part of the slot's tile can be multiplied by the scoring warpgroup `group`. All its threads call it.
template <class Next>
__device__ __forceinline__ void wait_for_load(const LatentState& state, LatentSlot& slot, int32_t group, int32_t load,
                                              uint32_t, const PackedWalk<Next>* walk) {
  wait_for_copies(load);
  __syncwarp();  // another thread of the warp copied the scales
  if (walk->is_loading) dequantise_load(state, slot, load);
  meet_after_writes(group);
}

}  // namespace kvc::kernels::cuda

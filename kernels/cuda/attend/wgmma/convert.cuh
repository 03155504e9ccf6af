// The warps that convert: all warps except the producer warp and the consumer warps. They change tiles before products
// read them. In tiles of which some row does not see every key, they replace NaN and infinity in V by zero, because
// 0 * NaN is NaN. They dequantise tiles of 8-bit K and V, exactly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/wgmma/instructions.cuh"
#include "kernels/cuda/attend/wgmma/layout.h"
#include "kernels/cuda/attend/wgmma/tiles.cuh"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {

// The number of a thread among the threads that convert: those of the first warpgroup without its first warp. With
// 8-bit K and V, those of the last warpgroup follow.
__device__ __forceinline__ int32_t converting_thread(const WgmmaState& state) {
  return state.thread - (state.thread < kWarpgroupThreads ? kWarpSize : kWarpSize + kWarpgroups * kWarpgroupThreads);
}

// Replaces NaN and infinity in a tile of V by zero, and marks their keys in `tile`.
template <class Tiles>
__device__ __forceinline__ void clean_tile(const WgmmaState& state, WgmmaTile& tile, unsigned char* values) {
  constexpr int32_t kThreads = Tiles::kConvertingWarps * kWarpSize;
  for (int32_t i = converting_thread(state); i < Tiles::kValueBytes / 16; i += kThreads) {
    uint32_t words[4];
    memcpy(words, __builtin_assume_aligned(values + i * 16, 16), sizeof words);
    if (take_not_finite<typename Tiles::Type>(words) == 0) continue;
    memcpy(__builtin_assume_aligned(values + i * 16, 16), words, sizeof words);
    tile.odd[i / 8 % Tiles::kKeys] = 1;  // a row of a panel has 8 chunks
    tile.has_odd = 1;
  }
  publish_writes();
}

template <class Tiles>
__device__ __forceinline__ void clean_tiles(const WgmmaState& state) {
  WgmmaFixed& fixed = *state.fixed;
  for (int32_t t = 0;; ++t) {
    const int32_t slot = Tiles::value_slot(t);
    wait_phase(&fixed.v_full[slot], Tiles::value_full(t));
    WgmmaTile& tile = Tiles::of(state, t);
    if (tile.begin < 0) break;
    if (tile.is_full == 0) {
      clean_tile<Tiles>(state, tile, state.shared + state.call->shape.v_at + slot * Tiles::kValueBytes);
    }
    __syncwarp();
    if (state.lane == 0) arrive(&fixed.v_ready[slot]);
  }
}

// Dequantises a tile to panels of the products' type. A thread loads five parts at once, so that the loads do not wait
// for each other. With `cleans`, NaN and infinity, which are rare, become zero.
template <class Tiles, Type kStored>
__device__ __forceinline__ void dequantise_tile(const WgmmaState& state, const unsigned char* raw,
                                                unsigned char* panels, WgmmaTile& tile, bool cleans) {
  using T = typename Tiles::Type;
  constexpr int32_t kParts = Tiles::kDims / 8;  // parts of a key; each has 8 bytes as stored, and is a chunk of a panel
  constexpr int32_t kChunks = Tiles::kKeys * kParts, kThreads = Tiles::kConvertingWarps * kWarpSize;
  constexpr int32_t kAtOnce = 5;
  for (int32_t first = converting_thread(state); first < kChunks; first += kAtOnce * kThreads) {
    uint32_t from[kAtOnce][2] = {}, odd = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int32_t i = first + j * kThreads;
      if (i < kChunks) memcpy(from[j], __builtin_assume_aligned(raw + i * 8, 8), sizeof from[j]);
      odd |= odd_bytes(kStored, from[j][0]) | odd_bytes(kStored, from[j][1]);
    }
    const auto put = [&](bool has_odd) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int32_t i = first + j * kThreads, key = i / kParts, part = i % kParts;
        if (i >= kChunks) break;
        uint32_t to[4];
        dequantise_eight(T{}, kStored, from[j], has_odd, to);
        if (has_odd && cleans && take_not_finite<T>(to) != 0) {
          tile.odd[key] = 1;
          tile.has_odd = 1;
        }
        unsigned char* const chunk = panels + part / 8 * Tiles::kPanelBytes + swizzled(key, part % 8, kPanelPitch);
        memcpy(__builtin_assume_aligned(chunk, 16), to, sizeof to);
      }
    };
    if (odd == 0) {
      put(false);
    } else {
      put(true);
    }
  }
  publish_writes();
}

// Dequantises all tiles. K of a tile is dequantised when it has arrived as stored and the slot for the result is empty.
// Then V of the previous tile follows in the same way.
template <class Tiles, Type kStored>
__device__ __forceinline__ void dequantise_tiles(const WgmmaState& state) {
  WgmmaFixed& fixed = *state.fixed;
  const WgmmaShape& shape = state.call->shape;
  const auto leave = [&](uint64_t* full, int32_t raw_slot) {
    __syncwarp();
    if (state.lane != 0) return;
    arrive(full);
    arrive(&fixed.raw_empty[raw_slot]);
  };
  for (int32_t t = 0;; ++t) {
    const int32_t slot = Tiles::slot(t), i = Tiles::raw_keys(t), raw_slot = Tiles::raw_slot(i);
    const unsigned char* const raw_tiles = state.shared + shape.raw_at;
    wait_phase(&fixed.raw_full[raw_slot], Tiles::raw_full(i));
    wait_phase(&fixed.k_empty[slot], Tiles::empty(t));
    WgmmaTile& tile = Tiles::of(state, t);
    const bool is_end = tile.begin < 0;
    if (!is_end) {
      dequantise_tile<Tiles, kStored>(state, raw_tiles + raw_slot * Tiles::kRawBytes,
                                      state.shared + shape.k_at + slot * Tiles::kKeyBytes, tile, false);
    }
    leave(&fixed.k_full[slot], raw_slot);
    if (t > 0) {
      const int32_t of_v = Tiles::value_slot(t - 1), j = Tiles::raw_values(t - 1), v_raw_slot = Tiles::raw_slot(j);
      wait_phase(&fixed.raw_full[v_raw_slot], Tiles::raw_full(j));
      wait_phase(&fixed.v_empty[of_v], Tiles::value_empty(t - 1));
      WgmmaTile& before = Tiles::of(state, t - 1);
      dequantise_tile<Tiles, kStored>(state, raw_tiles + v_raw_slot * Tiles::kRawBytes,
                                      state.shared + shape.v_at + of_v * Tiles::kValueBytes, before,
                                      before.is_full == 0);
      leave(&fixed.v_ready[of_v], v_raw_slot);
    }
    if (is_end) break;
  }
}

template <class Tiles>
__device__ __forceinline__ void convert_tiles(const WgmmaState& state) {
  if constexpr (!Tiles::kRaw) {
    clean_tiles<Tiles>(state);
  } else if (stored_type(state.call->attend.layer) == Type::kE4m3) {
    dequantise_tiles<Tiles, Type::kE4m3>(state);
  } else {
    dequantise_tiles<Tiles, Type::kE5m2>(state);
  }
}

}  // namespace kvc::kernels::cuda

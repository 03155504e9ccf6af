// This file is the part of the decode kernel that computes P*V. It adds p[key][row] * v[key] to o[row] for the keys of
// a block. p: softmax weights.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/decode_tile.h"

namespace kvc::kernels::KVC_TARGET {

// The weights P of kRows rows. The weight of (key, row) is p[key * stride + row]. With kPairs, the dword
// p[key / 2 * stride + row] holds the weights of two keys.
struct Weights {
  const float* p;
  int stride;
};

// Adds kVectors vectors of V, from vector `first` on, for the keys [begin, end). tail: the number of elements in the
// last vector, or 0 if it is whole. o: the output of the first row. block_scales: as in load_dims. last: whether these
// are the last vectors of V. After them, the kernel reads the rows `following`, which are K. kRowBytes: as in
// RowAddresses.
template <class Format, int kRows, int kVectors, int kRowBytes>
KVC_INLINE void add_values(const DecodeKeys& keys, KeyRows following, int begin, int end, Weights weights, float* o,
                           int o_stride, int block_scales, int first, int tail, bool last) {
  constexpr int kOut = Format::kOutputs;
  F32 sums[kRows][kVectors * kOut];
  float* target = o + first * kOut * kLanes;
  KVC_UNROLL for (int g = 0; g < kRows; ++g) {
    KVC_UNROLL for (int i = 0; i < kVectors * kOut; ++i) sums[g][i] = load(target + g * o_stride + i * kLanes);
  }
  const int64_t first_byte = first * static_cast<int64_t>(Format::kVecBytes);
  const RowAddresses<kRowBytes> current({keys.now.block->v, keys.now.v_offset + first_byte}), behind(following);
  const RowAddresses<kRowBytes> far({keys.far.block->v, keys.far.v_offset + first_byte});
  const auto prefetch_vector = [&](int key, int i) __attribute__((always_inline)) {
    if (!begins_line<Format>(i)) return;
    const int64_t byte = i * Format::kVecBytes;
    prefetch_far<Format::kFarInL1 && kRowBytes != 0>(far[key] + byte);
    const int ahead = key + kNearKeys - kKeyBlock;
    if (ahead < 0) {
      prefetch(current[key + kNearKeys] + byte);
    } else if (!last) {
      prefetch(current[ahead] + kVectors * Format::kVecBytes + byte);
    } else {  // the rows of K in `following` are read next: prefetch their first strip, and the strip at first_byte
      prefetch(behind[ahead] + byte);
      prefetch(behind[ahead] + first_byte + byte);
    }
  };
  constexpr int kKeys = Format::kPairs ? 2 : 1;
  const int32_t* const zeros = Format::kZeroPoints ? keys.scales->v_zeros : nullptr;
  // The byte at which the scales of vector `first` begin, counted from the first byte of that vector.
  const int scales_at = block_scales + first * (Format::kScaleBytes - Format::kVecBytes);
  for (int k = begin - begin % kKeys; k < end; k += kKeys) {
    // A half of a pair outside [begin, end) stays 0.
    const bool has_even = k >= begin, has_odd = kKeys == 2 && k + 1 < end;
    typename Format::Vec v[kVectors * kOut];
    KVC_UNROLL for (int i = 0; i < kVectors; ++i) {
      typename Format::Raw rows[2] = {};
      KVC_UNROLL for (int half = 0; half < kKeys; ++half) {
        if (half == 0 ? !has_even : !has_odd) continue;
        const int dims = tail != 0 && i == kVectors - 1 ? tail : Format::kStep;
        rows[half] = load_dims<Format>(current[k + half], i, dims, zeros, k + half, scales_at);
        prefetch_vector(k + half, i);
      }
      Format::spread(rows[0], rows[1], v + i * kOut);
    }
    KVC_UNROLL for (int g = 0; g < kRows; ++g) {
      const typename Format::Vec p = Format::broadcast(weights.p + k / kKeys * weights.stride + g);
      KVC_UNROLL for (int i = 0; i < kVectors * kOut; ++i) sums[g][i] = Format::multiply_add(v[i], p, sums[g][i]);
    }
  }
  KVC_UNROLL for (int g = 0; g < kRows; ++g) {
    KVC_UNROLL for (int i = 0; i < kVectors * kOut; ++i) store(target + g * o_stride + i * kLanes, sums[g][i]);
  }
}

// Adds V of the whole head, in strips of vectors that fit the registers. kHeadDim: as in tile_scores.
template <class Format, int kRows, int kHeadDim>
KVC_INLINE void add_value_rows(const View& view, const DecodeKeys& keys, KeyRows following, int begin, int end,
                               Weights weights, float* o, int o_stride) {
  if (kHeadDim != 0) o_stride = round_up(kHeadDim, Format::kStep);  // the same value, but a constant
  if constexpr (kRows > 1 && kRows * Format::kOutputs > kValueAccumulators) {
    constexpr int kHalf = kRows / 2;
    const Weights others = {weights.p + kHalf, weights.stride};
    add_value_rows<Format, kHalf, kHeadDim>(view, keys, following, begin, end, weights, o, o_stride);
    add_value_rows<Format, kHalf, kHeadDim>(view, keys, following, begin, end, others, o + kHalf * o_stride, o_stride);
  } else {
    constexpr int kBudget = kValueAccumulators / kRows / Format::kOutputs, kMost = 8 / Format::kOutputs;
    constexpr int kStrip = kBudget < 1 ? 1 : kBudget > kMost ? kMost : kBudget;
    constexpr int kRowBytes = kRowBytesOf<Format, kHeadDim>;
    const int dims = kHeadDim != 0 ? kHeadDim : view.v_head_dim;
    const int scales = kHeadDim != 0 ? kHeadDim / 2 : view.v_block_scales;
    const int vectors = dims / Format::kStep, tail = dims % Format::kStep;
    const int strips_end = vectors - vectors % kStrip;
    for (int c = 0; c < strips_end; c += kStrip) {
      const bool last = c + kStrip == vectors && tail == 0;
      add_values<Format, kRows, kStrip, kRowBytes>(keys, following, begin, end, weights, o, o_stride, scales, c, 0,
                                                   last);
    }
    for (int c = strips_end; c < vectors; ++c) {
      const bool last = c + 1 == vectors && tail == 0;
      add_values<Format, kRows, 1, kRowBytes>(keys, following, begin, end, weights, o, o_stride, scales, c, 0, last);
    }
    if (tail != 0) {
      add_values<Format, kRows, 1, kRowBytes>(keys, following, begin, end, weights, o, o_stride, scales, vectors, tail,
                                              true);
    }
  }
}

// Adds V of the whole head, for any head dim. It is not inlined, so all callers share one copy of the code.
template <class Format, int kRows>
[[gnu::noinline]] static void add_any_value_rows(const View& view, const DecodeKeys& keys, KeyRows following, int begin,
                                                 int end, Weights weights, float* o, int o_stride) {
  add_value_rows<Format, kRows, 0>(view, keys, following, begin, end, weights, o, o_stride);
}

// Calls visit(begin, end) for each run of set bits.
template <class Visit>
KVC_INLINE void for_each_run(uint32_t bits, Visit visit) {
  while (bits != 0) {
    const int begin = __builtin_ctz(bits), end = begin + __builtin_ctz(~(bits >> begin));
    visit(begin, end);
    bits &= ~0u << end;
  }
}

// Adds V if the rows of a tile see different keys. Keys that all rows see are added for all rows together. The other
// keys are added row by row. So a key that a row does not see never reaches the sum of this row (0 * NaN is NaN).
template <class Format, int kRows>
static void add_masked_value_rows(const View& view, const DecodeKeys& keys, KeyRows following, const DecodeTile& tile,
                                  const TileMask<kRows>& mask, const float* p) {
  for_each_run(mask.common, [&](int begin, int end) {
    add_any_value_rows<Format, kRows>(view, keys, following, begin, end, {p, kRows}, tile.o, tile.o_stride);
  });
  for (int g = 0; g < tile.num_rows; ++g) {
    for_each_run(mask.rows[g] & ~mask.common, [&](int begin, int end) {
      add_any_value_rows<Format, 1>(view, keys, following, begin, end, {p + g, kRows}, tile.o + g * tile.o_stride,
                                    tile.o_stride);
    });
  }
}

// Finishes a block with options, masks or staged keys, after its scores were computed. It is not inlined, so that the
// common path keeps its registers.
template <class Format, int kRows>
[[gnu::noinline]] static void finish_tile(const View& view, const DecodeKeys& keys, const DecodeTile& tile, bool whole,
                                          float* scores) {
  constexpr int kKeys = kLanes / kRows;
  const KeyBlock& block = *keys.now.block;
  const KeyRows following = keys.next.k();
  const int vectors = (block.count + kKeys - 1) / kKeys;
  if (view.options.any) score_tile<kRows>(view, tile, block.begin, block.count, vectors, scores);
  if (whole) {
    tile_softmax<Format, kRows>(view, tile, vectors, scores);
    add_any_value_rows<Format, kRows>(view, keys, following, 0, kKeyBlock, {scores, kRows}, tile.o, tile.o_stride);
    return;
  }
  const TileMask<kRows> mask = tile_mask<kRows>(view, tile, block);
  mask_scores<kRows>(mask, vectors, scores);
  tile_softmax<Format, kRows>(view, tile, vectors, scores);
  add_masked_value_rows<Format, kRows>(view, keys, following, tile, mask, scores);
}

// What one call of decode_tile keeps for the next call. A pass calls decode_tile once for each block, kv head and tile.
// Each call computes its own scores, then P*V of the previous call, and then its own softmax. So the scores of a call
// are computed between the softmax of the previous call and the P*V that needs this softmax. Therefore no instruction
// waits for a softmax. In names of this file, a step is such a call.
struct DecodePipeline {
  using AddValues = void (*)(const View& view, const DecodePipeline& step, KeyRows following, const float* p);
  AddValues add_values = nullptr;  // adds P*V of the previous call; null if that is done
  DecodeKeys keys;                 // the keys of the previous call
  DecodeTile tile;
  int turn = 0;  // which of the two score buffers the current call uses
  alignas(64) float scores[2][kKeyBlock * kMaxTileRows + kLanes];
};

template <class Format, int kRows, int kHeadDim>
static void add_block_values(const View& view, const DecodePipeline& step, KeyRows following, const float* p) {
  const DecodeTile& tile = step.tile;
  const Weights weights = {p, kRows};
  if constexpr (kHeadDim == 0) {
    add_any_value_rows<Format, kRows>(view, step.keys, following, 0, kKeyBlock, weights, tile.o, tile.o_stride);
  } else {
    add_value_rows<Format, kRows, kHeadDim>(view, step.keys, following, 0, kKeyBlock, weights, tile.o, tile.o_stride);
  }
}

// Adds P*V of the previous call of decode_tile. following: the rows that are read after the V of that call.
KVC_INLINE void finish_step(const View& view, DecodePipeline& pipeline, KeyRows following) {
  pipeline.add_values(view, pipeline, following, pipeline.scores[pipeline.turn ^ 1]);
  pipeline.add_values = nullptr;
}

// Computes one block of keys of one kv head for one tile of rows. whole: whether every row sees all kKeyBlock keys.
template <class Format, int kRows, int kHeadDim>
static void decode_tile(const View& view, const DecodeKeys& keys, const DecodeTile& tile, bool whole,
                        DecodePipeline& pipeline) {
  float* scores = pipeline.scores[pipeline.turn];
  const DecodeKeys& values = pipeline.add_values != nullptr ? pipeline.keys : keys;
  tile_scores<Format, kRows, kHeadDim>(view, keys, values.now.v(), tile, scores);
  if (pipeline.add_values != nullptr) finish_step(view, pipeline, keys.next.k());
  if (!whole || view.options.any || view.staged) {  // staged keys are valid only in this call
    finish_tile<Format, kRows>(view, keys, tile, whole, scores);
    return;
  }
  tile_softmax<Format, kRows>(view, tile, kKeyBlock * kRows / kLanes, scores);
  pipeline.add_values = add_block_values<Format, kRows, kHeadDim>;
  pipeline.keys = keys;
  pipeline.tile = tile;
  pipeline.turn ^= 1;
}

}  // namespace kvc::kernels::KVC_TARGET

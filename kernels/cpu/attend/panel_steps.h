// This file is P*V of the panel kernel for formats that multiply matrix tiles (AMX). The keys are multiplied in groups
// of 32, for all rows of a tile. In names of this file, a step is such a group. A key that a row does not see has
// weight 0, but 0 * NaN is NaN. So if some row does not see all keys of a step, the keys whose V is not finite are left
// out of the step. Such a key is added row by row, and only to the rows that see it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_tile.h"

namespace kvc::kernels::KVC_TARGET {

static constexpr int kStepKeys = 32, kStepPairs = kStepKeys / 2;
static_assert(kStepPairs <= kKeyBlock, "staged_k holds a step of V");

// Returns the smallest range of whole steps that contains `keys`.
KVC_INLINE KeyRange whole_steps(KeyRange keys) {
  return {keys.begin / kStepKeys * kStepKeys, round_up(keys.end, kStepKeys)};
}

// Sets V to zero after the last of the panel's `count` keys, up to the end of the last step.
static void clear_values_behind(const View& view, const PanelPass& pass, int count) {
  const int first = (count + 1) / 2, last = round_up(count, kStepKeys) / 2;
  for (int strip = 0; strip * kStrip < pass.o_width; ++strip) {
    const int columns = strip_columns(pass, strip);
    memset(value_strip(view, pass, strip) + static_cast<int64_t>(first) * columns, 0,
           static_cast<size_t>((last - first) * columns) * sizeof(float));
  }
}

// Sets the weights of one row to 0 for those keys of `steps` for which softmax_row stored no weight. seen: the keys
// that the row sees.
template <class Format>
static void clear_weights(KeyRange seen, KeyRange steps, float* weights) {
  const bool none = seen.begin >= seen.end;
  const int begin = steps.begin / kLanes, end = steps.end / kLanes;
  const int stored_begin = none ? end : seen.begin / kLanes, stored_end = none ? end : (seen.end - 1) / kLanes + 1;
  for (int z = begin; z < stored_begin; ++z) Format::store_weights(weights, z, zero());
  for (int z = stored_end; z < end; ++z) Format::store_weights(weights, z, zero());
}

// Returns a bit for each key of the step that begins at `key`. The bit is 1 if V of the key has a NaN or an infinity.
template <class Format>
static uint32_t keys_not_finite(const View& view, const PanelPass& pass, int key) {
  uint32_t keys = 0;
  for (int strip = 0; strip * kStrip < pass.o_width; ++strip) {
    const int columns = strip_columns(pass, strip);
    const float* values = value_strip(view, pass, strip) + static_cast<int64_t>(key / 2) * columns;
    for (int pair = 0; pair < kStepPairs; ++pair) {
      keys |= Format::halves_not_finite(values + pair * columns, columns) << 2 * pair;
    }
  }
  return keys;
}

// Copies V of the step that begins at `key` to staged_k, strip by strip. left_out: bit i is 1 if key i of the step is
// left out. The copy of such a key is zeros.
template <class Format>
static void copy_step(const View& view, const PanelPass& pass, int key, uint32_t left_out) {
  float* target = view.scratch->staged_k;
  for (int strip = 0; strip * kStrip < pass.o_width; ++strip) {
    const int columns = strip_columns(pass, strip);
    const float* values = value_strip(view, pass, strip) + static_cast<int64_t>(key / 2) * columns;
    for (int i = 0; i < kStepPairs * columns; i += kLanes, target += kLanes) {
      const uint32_t pair = left_out >> (i / columns * 2);
      const auto v = Format::load_packed(values + i);
      Format::store_packed(target, Format::keep_halves(v, (pair & 1) == 0, (pair & 2) == 0));
    }
  }
}

// Adds P * V of the keys [begin, end) to o, for the rows of a tile. The keys are whole steps. p and o begin at the
// tile's first row. copied: whether V is read from the copy of one step (copy_step).
template <class Format>
static void add_steps(const View& view, const PanelPass& pass, const float* p, int begin, int end, bool copied,
                      float* o) {
  for (int strip = 0; strip * kStrip < pass.o_width && begin < end; ++strip) {
    const int columns = strip_columns(pass, strip);
    const float* values = copied ? view.scratch->staged_k + strip * kStrip * kStepPairs
                                 : value_strip(view, pass, strip) + static_cast<int64_t>(begin / 2) * columns;
    const TileArgs args = {p + begin / 2,     pass.score_stride,  values,       columns,
                           (end - begin) / 2, o + strip * kStrip, pass.o_width, true};
    multiply_columns<Format, true>(Format::kRows, columns / kLanes, args);
  }
}

// Adds P * V of the keys `steps` to o. all: the keys that all rows see. Calls add_key(key) for each key that was left
// out.
template <class Format, class AddKey>
static void add_all_steps(const View& view, const PanelPass& pass, const float* p, KeyRange steps, KeyRange all,
                          float* o, AddKey add_key) {
  int done = steps.begin;
  for (int key = steps.begin; key < steps.end; key += kStepKeys) {
    if (key >= all.begin && key + kStepKeys <= all.end) continue;
    const uint32_t left_out = keys_not_finite<Format>(view, pass, key);
    if (left_out == 0) continue;
    copy_step<Format>(view, pass, key, left_out);
    add_steps<Format>(view, pass, p, done, key, false, o);
    add_steps<Format>(view, pass, p, key, key + kStepKeys, true, o);
    for (uint32_t bits = left_out; bits != 0; bits &= bits - 1) add_key(key + __builtin_ctz(bits));
    done = key + kStepKeys;
  }
  add_steps<Format>(view, pass, p, done, steps.end, false, o);
}

}  // namespace kvc::kernels::KVC_TARGET

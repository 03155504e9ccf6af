// Limits the error of sums over many keys. A float32 sum of n equal terms can be off by n / 2^26 of its value.
// Therefore the kernels add only some hundred terms in float32. Then they fold: they add l and o to float64 sums, and
// start again from zero. So the error of a result does not grow with the number of keys.
//
// Each fold costs one pass over o. This is far below 1 % of the multiply-adds between two folds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/rows.h"

namespace kvc::kernels::KVC_TARGET {

// The decode kernel folds after this many keys.
static constexpr int32_t kFoldKeys = 1024;
// The panel kernel folds after this many keys. It first sums the keys of one panel (with AMX, of one matrix tile), and
// then adds that sum to o.
static constexpr int32_t kPanelFoldKeys = 8192;
static_assert(kPanelFoldKeys >= kMaxPanelKeys);

// The folded sums of a row of a pass. l is the sum of 2^((score - m) * exp2_scale), and o is the sum of these terms
// times V. m is -inf until the first fold after the row has seen a key.
struct FoldedRow {
  double* o;  // [width], in the order in which the kernel keeps o
  float* m;
  double* l;
};

KVC_INLINE FoldedRow folded_row(const View& view, int64_t index, int32_t width) {
  Scratch& scratch = *view.scratch;
  return {scratch.fold_o + index * width, scratch.fold_m + index, scratch.fold_l + index};
}

static void begin_folded_rows(const View& view, int32_t num_rows) {
  for (int32_t i = 0; i < num_rows; ++i) view.scratch->fold_m[i] = KVC_NEG_INF;
}

// Adds the state (m, l, o) to the folded sums, and sets o to zero. The caller then sets l to zero. m must be at least
// the m of the previous fold.
static void fold_row(const View& view, int32_t width, float m, double l, float* o, const FoldedRow& folded) {
  if (m == KVC_NEG_INF) return;  // The row has seen no key, so o and l are 0.
  double* __restrict sums = folded.o;
  float* __restrict terms = o;
  if (*folded.m == KVC_NEG_INF) {
    for (int32_t d = 0; d < width; ++d) sums[d] = static_cast<double>(terms[d]);
    *folded.l = l;
  } else if (*folded.m == m) {
    for (int32_t d = 0; d < width; ++d) sums[d] += static_cast<double>(terms[d]);
    *folded.l += l;
  } else {
    const double rise =
        (static_cast<double>(m) - static_cast<double>(*folded.m)) * static_cast<double>(view.exp2_scale);
    const double factor = __builtin_exp2(-rise);
    for (int32_t d = 0; d < width; ++d) sums[d] = sums[d] * factor + static_cast<double>(terms[d]);
    *folded.l = *folded.l * factor + l;
  }
  *folded.m = m;
  memset(o, 0, static_cast<size_t>(width) * sizeof(float));
}

// Folds the state (m, l, o) of the remaining keys, and writes the sum over all keys to o. Returns l over all keys.
static double unfold_row(const View& view, int32_t width, float m, double l, float* o, const FoldedRow& folded) {
  fold_row(view, width, m, l, o, folded);
  if (*folded.m == KVC_NEG_INF) return l;
  for (int32_t d = 0; d < width; ++d) o[d] = static_cast<float>(folded.o[d]);
  return *folded.l;
}

}  // namespace kvc::kernels::KVC_TARGET

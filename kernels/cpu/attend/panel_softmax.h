// Panel kernel: softmax of one row over the keys of a panel that it sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_pack.h"

namespace kvc::kernels::KVC_TARGET {

// scores: the row's, one a key of the panel, in place to P (pairs of bf16 if the format says so). seen: not empty,
// within the panel. o, m, l: the row's running state.
template <class Format>
static void softmax_row(const View& view, float* scores, KeyRange seen, float* o, int o_width, float* m, float* l) {
  const int first = seen.begin / kLanes, last = (seen.end - 1) / kLanes;
  const F32 begin = set1(static_cast<float>(seen.begin)), end = set1(static_cast<float>(seen.end));
  for (int z = first;; z = last) {  // only these two can hold keys that are not seen
    const F32 index = add(lane_index(), set1(static_cast<float>(z * kLanes)));
    store(scores + z * kLanes, keep_range(load(scores + z * kLanes), index, begin, end));
    if (z == last) break;
  }
  F32 largest = load(scores + first * kLanes);
  for (int z = first + 1; z <= last; ++z) largest = max(largest, load(scores + z * kLanes));
  const float row_max = reduce_max(largest);
  if (row_max > *m) {
    float factors[kLanes];
    store(factors, exp2(set1((*m - row_max) * view.exp2_scale)));
    *m = row_max;
    *l *= factors[0];
    const F32 factor = set1(factors[0]);
    for (int d = 0; d < o_width; d += kLanes) store(o + d, mul(load(o + d), factor));
  }
  const F32 shift = max(set1(*m), set1(KVC_LOWEST));
  const F32 scale = set1(view.exp2_scale);
  F32 sum = zero();
  for (int z = first; z <= last; ++z) {
    const F32 p = exp2(mul(sub(load(scores + z * kLanes), shift), scale));
    sum = add(sum, p);
    Format::store_weights(scores, z, p);
  }
  *l += reduce_add(sum);
}

}  // namespace kvc::kernels::KVC_TARGET

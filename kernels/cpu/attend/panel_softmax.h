// Panel kernel: from dot products to P of one row, over the keys of a panel that it sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_pack.h"

namespace kvc::kernels::KVC_TARGET {

// Applies the score options to row r of the pass (counted from its first). seen: not empty, within the panel that
// begins at key panel_begin.
static void score_row(const View& view, const PanelPass& pass, int32_t panel_begin, int r, KeyRange seen,
                      float* scores) {
  const bool alibi = view.options.alibi_slopes != nullptr;
  const int32_t head = pass.head * view.group + (pass.row_begin + r) % view.group;
  const F32 slope = set1(alibi ? view.options.alibi_slopes[head] : 0.0f);
  const F32 position = set1(static_cast<float>(view.scratch->masks[r].position - panel_begin));
  for (int z = seen.begin / kLanes; z <= (seen.end - 1) / kLanes; ++z) {
    const F32 distance = alibi ? sub(position, load(view.scratch->key_offsets + z * kLanes)) : zero();
    store(scores + z * kLanes, score_of(view.options, load(scores + z * kLanes), slope, distance));
  }
}

// Fills nodes_seen for the keys `seen` of the panel.
static void find_nodes(const View& view, int32_t panel_begin, const QueryMask& mask, KeyRange seen) {
  for (int32_t i = seen.begin; i < seen.end; ++i) {
    view.scratch->nodes_seen[i] = sees_key(&view.tree, &mask, panel_begin + i) ? 1.0f : 0.0f;
  }
}

// -inf where nodes_seen says that the row does not see a key.
static void hide_nodes(const View& view, KeyRange seen, float* scores) {
  for (int z = seen.begin / kLanes; z <= (seen.end - 1) / kLanes; ++z) {
    const F32 nodes = load(view.scratch->nodes_seen + z * kLanes);
    store(scores + z * kLanes, keep_range(load(scores + z * kLanes), nodes, set1(1.0f), set1(2.0f)));
  }
}

// scores: the row's, one a key of the panel, in place to P (pairs of bf16 if the format says so). seen: not empty,
// within the panel. o, m, l: the row's running state. next: scores of the row behind it, which come from L2.
template <class Format>
static void softmax_row(const View& view, float* scores, const float* next, KeyRange seen, float* o, int o_width,
                        float* m, float* l) {
  const int first = seen.begin / kLanes, last = (seen.end - 1) / kLanes;
  const F32 begin = set1(static_cast<float>(seen.begin)), end = set1(static_cast<float>(seen.end));
  for (int z = first;; z = last) {  // only these two can hold keys that are not seen
    const F32 index = add(lane_index(), set1(static_cast<float>(z * kLanes)));
    store(scores + z * kLanes, keep_range(load(scores + z * kLanes), index, begin, end));
    if (z == last) break;
  }
  F32 largest = load(scores + first * kLanes);
  for (int z = first + 1; z <= last; ++z) {
    __builtin_prefetch(next + z * kLanes);
    largest = max(largest, load(scores + z * kLanes));
  }
  const float row_max = reduce_max(largest);
  const float before = *m, after = row_max > before ? row_max : before;
  if (before < after && before != KVC_NEG_INF) {  // else o and l are 0, or stay
    float factors[kLanes];
    store(factors, exp2(set1((before - after) * view.exp2_scale)));
    *l *= factors[0];
    const F32 factor = set1(factors[0]);
    for (int d = 0; d < o_width; d += kLanes) store(o + d, mul(load(o + d), factor));
  }
  *m = after;
  const F32 shift = max(set1(after), set1(KVC_LOWEST));
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

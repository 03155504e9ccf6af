// This file is the softmax of the panel kernel. It converts the dot products of one row to P (softmax weights), for
// those keys of a panel that the row sees.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/attend/panel_pack.h"

namespace kvc::kernels::KVC_TARGET {

// Applies the score options to row r of the pass. panel_begin: the number of the panel's first key. seen: the keys of
// the panel that the row sees, at least one.
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
  if (!view.options.biases) return;
  const BiasRow row = {view.scratch->places[r], view.scratch->masks[r].position, head, pass.head};
  add_biases(*view.args, row, bias_keys(view, seen.begin, seen.end), scores + seen.begin, 1);
}

// Returns whether row r of the pass sees key i of the panel. key: the number of that key.
[[gnu::noinline]] static bool row_sees(const View& view, int r, int32_t kv_head, int32_t key, int i) {
  if (!sees_key(&view.tree, view.scratch->masks + r, key)) return false;
  const kvc_backend_bias& bias = view.args->bias;
  return bias.mask == nullptr ||
         !mask_hides(bias, view.scratch->places[r].token, kv_head, view.scratch->bias_indexes[i]);
}

// Sets nodes_seen for the keys `seen` of the panel: 1 if row r of the pass sees the key, else 0.
static void find_nodes(const View& view, const PanelPass& pass, int32_t panel_begin, int r, KeyRange seen) {
  for (int32_t i = seen.begin; i < seen.end; ++i) {
    view.scratch->nodes_seen[i] = row_sees(view, r, pass.head, panel_begin + i, i) ? 1.0f : 0.0f;
  }
}

// Sets the scores of keys that the row does not see to -inf, by nodes_seen.
static void hide_nodes(const View& view, KeyRange seen, float* scores) {
  for (int z = seen.begin / kLanes; z <= (seen.end - 1) / kLanes; ++z) {
    const F32 nodes = load(view.scratch->nodes_seen + z * kLanes);
    store(scores + z * kLanes, keep_range(load(scores + z * kLanes), nodes, set1(1.0f), set1(2.0f)));
  }
}

// Sets scores outside `seen` to -inf, in the vectors that contain the first and the last key of `seen`.
KVC_INLINE void hide_edges(KeyRange seen, float* scores) {
  const F32 begin = set1(static_cast<float>(seen.begin)), end = set1(static_cast<float>(seen.end));
  const auto hide = [&](int z) __attribute__((always_inline)) {
    const F32 index = add(lane_index(), set1(static_cast<float>(z * kLanes)));
    store(scores + z * kLanes, keep_range(load(scores + z * kLanes), index, begin, end));
  };
  if (seen.begin % kLanes != 0) hide(seen.begin / kLanes);
  if (seen.end % kLanes != 0) hide(seen.end / kLanes);
}

// Returns the largest scores of a range of vectors, lane by lane.
KVC_INLINE F32 largest_scores(const float* scores, KeyRange vectors) {
  F32 largest = set1(KVC_NEG_INF);
  for (int z = vectors.begin; z < vectors.end; ++z) largest = max(largest, load(scores + z * kLanes));
  return largest;
}

// m is raised only if P would exceed 2^kMaxRise. So m rarely changes, and the maximum over the lanes of a vector is
// computed only when m is raised.
static constexpr float kMaxRise = 8.0f;

// The running state of a row. P is 2^((score - m) * exp2_scale), and never exceeds 2^kMaxRise.
struct RowSums {
  float* o;
  int o_width;
  float* m;
  float* l;
};

KVC_INLINE void raise_row(const View& view, F32 largest, const RowSums& row) {
  const float before = *row.m, after = reduce_max(largest);
  if (before != KVC_NEG_INF) {  // if m is -inf, o and l are 0
    float factors[kLanes];
    store(factors, exp2(set1((before - after) * view.exp2_scale)));
    *row.l *= factors[0];
    const F32 factor = set1(factors[0]);
    for (int d = 0; d < row.o_width; d += kLanes) store(row.o + d, mul(load(row.o + d), factor));
  }
  *row.m = after;
}

// The scores of a row, which become its P: one value for each key of the panel.
struct RowScores {
  float* scores;
  KeyRange vectors;  // the vectors that contain a key which the row sees
};

// Replaces the scores of `row` by P in place, and updates m and l of the row. With kPairs, P becomes pairs of bf16.
// largest: the largest of these scores, lane by lane. Returns the largest scores of `next`, the row after `row`, lane
// by lane. The scores of `next` are loaded from the level-2 cache while P is computed.
template <class Format>
static F32 softmax_row(const View& view, RowScores row, RowScores next, F32 largest, RowSums sums) {
  const F32 scale = set1(view.exp2_scale), rise = mul(sub(largest, set1(*sums.m)), scale);
  if (any_greater(rise, set1(kMaxRise))) raise_row(view, largest, sums);
  const F32 shift = max(set1(*sums.m), set1(KVC_LOWEST));
  const bool alike = next.vectors.begin == row.vectors.begin && next.vectors.end == row.vectors.end;
  F32 sum = zero();
  largest = alike ? set1(KVC_NEG_INF) : largest_scores(next.scores, next.vectors);
  for (int z = row.vectors.begin; z < row.vectors.end; ++z) {
    const F32 p = exp2(mul(sub(load(row.scores + z * kLanes), shift), scale));
    sum = add(sum, p);
    Format::store_weights(row.scores, z, p);
    if (alike) largest = max(largest, load(next.scores + z * kLanes));
  }
  *sums.l += reduce_add(sum);
  return largest;
}

}  // namespace kvc::kernels::KVC_TARGET

// The working memory of one worker. Its size serves every layer that a cache can have, so nothing is allocated later.
//
// A pass of the panel kernel at head dims up to 512 uses 1.1 MiB of it between folds, and 0.5 MiB more in a fold. So a
// level-2 cache of 2 MiB has room for the stored K and V that are read too. Work that needs more rows than fit is cut
// into passes and never refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/layer_check.h"
#include "kernels/common/mask.h"
#include "kernels/common/query_place.h"
#include "kernels/cpu/listed_keys.h"

namespace kvc::kernels {

constexpr int32_t kMaxLanes = 16;            // floats of the widest vector
constexpr int32_t kKeyBlock = 16;            // keys whose addresses are looked up at once
constexpr int32_t kMaxRows = 1024;           // query rows (query x head) of one pass
constexpr int32_t kRowFloats = 66 * 1024;    // elements of q, and of o, of one pass
constexpr int32_t kPanelFloats = 64 * 1024;  // elements of a packed block of K, and of V
// Limits for wide rows (MLA). A pass has at least this many rows, because each pass packs K and V again, and a block
// has at least this many keys.
constexpr int32_t kMinRows = 144;
constexpr int32_t kMinPanelKeys = 64;
constexpr int32_t kMaxPanelKeys = 512;  // keys of a packed block
constexpr int32_t kMaxRowGroup = 32;    // rows that go through scores, softmax and P*V together

struct alignas(64) Scratch {
  float q[kMinRows * kMaxHeadDim];
  float o[kMinRows * kMaxHeadDim];
  float k_panel[kMinPanelKeys * kMaxHeadDim];
  float v_panel[kMinPanelKeys * kMaxHeadDim];
  float scores[kMaxRowGroup * (kMaxPanelKeys + kMaxLanes)];
  float row[kMaxHeadDim];  // one row in natural order: a query before packing, an output before it is stored
  float maxima[kMaxRows * kMaxLanes];  // running maximum of a row; decode: one lane for each (row of the tile, key)
  float sums[kMaxRows * kMaxLanes];
  float factors[kMaxRows * kMaxLanes];  // decode, Format::kRowFactors: factors of a row's scores, in the same lanes
  QueryMask masks[kMaxRows];            // what a row sees
  QueryPlace places[kMaxRows];          // which query the row belongs to
  float key_offsets[kMaxPanelKeys];     // ALiBi: positions of a block's keys, relative to its first index
  int32_t bias_indexes[kMaxPanelKeys];  // biases and masks: of a block's keys, the index in their row
  int32_t bias_positions[kMaxPanelKeys];
  float nodes_seen[kMaxPanelKeys];  // trees and masks: 1 where a query sees a key of the panel
  // RoPE on read: a block of one kv head in float32, with K rotated; cos and sin [keys][2][half] of its positions; and
  // their coarse part.
  float staged_k[kKeyBlock * kMaxHeadDim];
  float staged_v[kKeyBlock * kMaxHeadDim];
  float key_cos_sin[kKeyBlock * kMaxHeadDim];
  double coarse[kMaxHeadDim];
  int32_t key_indexes[kMaxPanelKeys];  // deterministic trees: the index of each key of a panel (tree_path.h)
  // The state of each row of a pass over the keys that were folded (attend/long_sums.h).
  double fold_o[kMinRows * kMaxHeadDim];
  float fold_m[kMaxRows];
  double fold_l[kMaxRows];
  double merged_row[kMaxHeadDim];  // merge_tile: o of one row
  ListScratch list;                // of the query that is attended
};

static_assert(kMinRows * kMaxHeadDim >= kRowFloats && kMinPanelKeys * kMaxHeadDim >= kPanelFloats);

// Rows of `width` floats that a pass takes.
constexpr int32_t rows_of_pass(int32_t width) {
  const int32_t rows = kRowFloats / width;
  return rows < kMinRows ? kMinRows : rows < kMaxRows ? rows : kMaxRows;
}

}  // namespace kvc::kernels

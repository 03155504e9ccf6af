// Scratch is the working memory of one worker. It is large enough for every layer that a cache can have, so no call
// allocates memory.
//
// A pass (see attend/view.h) of the panel kernel uses 1.1 MiB at head dims up to 512. A fold (see attend/long_sums.h)
// uses 0.5 MiB more. So a level-2 cache of 2 MiB also has room for the K and V that are read. If an item has more rows
// than fit in the scratch, the kernel makes several passes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/layer_check.h"
#include "kernels/common/mask.h"
#include "kernels/common/query_place.h"
#include "kernels/cpu/listed_keys.h"

namespace kvc::kernels {

constexpr int32_t kMaxLanes = 16;            // floats of the widest vector
constexpr int32_t kKeyBlock = 16;            // keys whose addresses are looked up together
constexpr int32_t kMaxRows = 1024;           // largest number of rows (pairs of query and q head) in a pass
constexpr int32_t kRowFloats = 66 * 1024;    // floats of q in a pass, and of o; kMinRows wide rows may need more
constexpr int32_t kPanelFloats = 64 * 1024;  // floats of packed K, and of V; kMinPanelKeys wide keys may need more
// The smallest number of rows that fit in a pass, and the smallest number of keys of a packed block. They apply to wide
// rows (MLA). A pass needs many rows, because each pass packs K and V again.
constexpr int32_t kMinRows = 144;
constexpr int32_t kMinPanelKeys = 64;
constexpr int32_t kMaxPanelKeys = 512;  // largest number of keys in a packed block
constexpr int32_t kMaxRowGroup = 32;    // largest number of rows whose scores, softmax and P*V are computed together

struct alignas(64) Scratch {
  float q[kMinRows * kMaxHeadDim];
  float o[kMinRows * kMaxHeadDim];
  float k_panel[kMinPanelKeys * kMaxHeadDim];
  float v_panel[kMinPanelKeys * kMaxHeadDim];
  float scores[kMaxRowGroup * (kMaxPanelKeys + kMaxLanes)];
  float row[kMaxHeadDim];  // one row in the order of dims: a query before packing, or an output before it is stored
  float maxima[kMaxRows * kMaxLanes];  // running maxima: a float for each row (panels), a vector for each tile (decode)
  float sums[kMaxRows * kMaxLanes];
  float factors[kMaxRows * kMaxLanes];  // decode, Format::kRowFactors: factors of scores, in the lanes of `maxima`
  QueryMask masks[kMaxRows];            // what each row sees
  QueryPlace places[kMaxRows];          // the query of each row
  float key_offsets[kMaxPanelKeys];     // ALiBi: positions of a block's keys, minus the number of the block's first key
  int32_t bias_indexes[kMaxPanelKeys];  // biases and masks: the index of each key of a block
  int32_t bias_positions[kMaxPanelKeys];
  float nodes_seen[kMaxPanelKeys];  // trees and masks: 1 for a key of the panel that the current query sees, else 0
  // Staged keys (attend/staged_keys.h): a block of one kv head as float32. RoPE on read also needs cos and sin of the
  // positions of these keys [keys][2][half], and the coarse factors (rope_coarse) of one position.
  float staged_k[kKeyBlock * kMaxHeadDim];
  float staged_v[kKeyBlock * kMaxHeadDim];
  float key_cos_sin[kKeyBlock * kMaxHeadDim];
  double coarse[kMaxHeadDim];
  int32_t key_indexes[kMaxPanelKeys];  // deterministic trees: the index of each key of a panel (tree_path.h)
  // For each row of a pass, the state over the keys that were folded (attend/long_sums.h).
  double fold_o[kMinRows * kMaxHeadDim];
  float fold_m[kMaxRows];
  double fold_l[kMaxRows];
  double merged_row[kMaxHeadDim];  // merge_tile: the sum of o of one row
  ListScratch list;                // memory for the list of the query that is computed
};

static_assert(kMinRows * kMaxHeadDim >= kRowFloats && kMinPanelKeys * kMaxHeadDim >= kPanelFloats);

// Returns the largest number of rows of `width` floats that a pass can have.
constexpr int32_t rows_of_pass(int32_t width) {
  const int32_t rows = kRowFloats / width;
  return rows < kMinRows ? kMinRows : rows < kMaxRows ? rows : kMaxRows;
}

}  // namespace kvc::kernels

// Biases and the mask of a call, over the keys of a block or panel. They are compiled once, for all targets: the
// kernels call them after the other score options, and only in calls that have a bias or a mask.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/bias.h"
#include "kernels/common/query_place.h"

namespace kvc::kernels {

// Consecutive keys of a block or panel: the index of each in its row, and its position. [count] each.
struct BiasKeys {
  const int32_t* indexes;
  const int32_t* positions;
  int32_t count;
};

// One row of a kernel: a query and its heads. position: of the query, for distances.
struct BiasRow {
  QueryPlace place;
  int32_t position;
  int32_t head;  // q head
  int32_t kv_head;
};

// Adds the biases of each key to its score, scores[i * stride].
void add_biases(const kvc_backend_attend& args, const BiasRow& row, const BiasKeys& keys, float* scores, int stride);

// The keys that the mask leaves visible, a bit for each; at most 32 keys.
uint32_t unmasked_keys(const kvc_backend_attend& args, int32_t token, int32_t kv_head, const BiasKeys& keys);

}  // namespace kvc::kernels

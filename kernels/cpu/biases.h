// Applies the biases and the mask of a call to a block of keys (of a decode kernel) or to a panel of keys (of a panel
// kernel: attend/panel_pack.h). This code is compiled once, for all SIMD targets. Kernels call it after the other score
// options, and only if the call has a bias or a mask.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/bias.h"
#include "kernels/common/query_place.h"

namespace kvc::kernels {

// Consecutive keys of a block or panel. indexes: the index of each key in its row, [count]. positions: the position of
// each key, [count].
struct BiasKeys {
  const int32_t* indexes;
  const int32_t* positions;
  int32_t count;
};

// One row of a kernel: a query and one of its q heads. position: the position of the query, for distances.
struct BiasRow {
  QueryPlace place;
  int32_t position;
  int32_t head;  // q head
  int32_t kv_head;
};

// Adds the biases of key i to scores[i * stride], for all keys.
void add_biases(const kvc_backend_attend& args, const BiasRow& row, const BiasKeys& keys, float* scores, int stride);

// Returns which keys the mask does not hide: bit i is for key i. There are at most 32 keys.
uint32_t unmasked_keys(const kvc_backend_attend& args, int32_t token, int32_t kv_head, const BiasKeys& keys);

}  // namespace kvc::kernels

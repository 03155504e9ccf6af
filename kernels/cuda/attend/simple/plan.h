// The number of rows that a block of the simple kernel has in shared memory. Pure functions, tested without a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

namespace kvc::kernels::cuda {

constexpr int32_t kMaxBlockRows = 16;
constexpr int32_t kBlockKeys = 32;   // the number of keys that a block processes together, one for each lane
constexpr int32_t kStageDims = 64;   // the number of dims of these keys that are in shared memory at once
constexpr int32_t kFoldKeys = 1024;  // states are folded after so many keys, unless the plan has another number

// The number of floats in a block's shared memory after the fixed part: q, o, and o of earlier keys.
constexpr int64_t block_floats(int32_t rows, int32_t head_dim, int32_t v_head_dim) {
  return int64_t{rows} * (head_dim + 2 * v_head_dim);
}

// The largest number of rows of a block that fit into `floats` floats: a power of two, and at least 1 for every head
// dim that the backend accepts.
inline int32_t rows_of_block(int64_t floats, int32_t head_dim, int32_t v_head_dim) {
  int32_t rows = kMaxBlockRows;
  while (rows > 1 && block_floats(rows, head_dim, v_head_dim) > floats) rows /= 2;
  return rows;
}

}  // namespace kvc::kernels::cuda

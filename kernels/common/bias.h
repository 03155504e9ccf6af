// Finds the entry of a relative bias, of a key bias and of a mask for a query and a key (kvc_backend_bias). All kernels
// use these functions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

KVC_HOST_DEVICE bool has_bias(const kvc_backend_bias& bias) { return bias.relative != nullptr || bias.keys != nullptr; }

// Whether the call has a bias or a mask. Kernels with tensor cores do not support either of them.
KVC_HOST_DEVICE bool has_bias_or_mask(const kvc_backend_bias& bias) { return has_bias(bias) || bias.mask != nullptr; }

// Returns the relative bias of a query that is `distance` positions after a key. table: the entries of the query's
// token and head.
KVC_HOST_DEVICE float relative_entry(const float* table, int32_t num_distances, bool zero_beyond, int32_t distance) {
  if (distance >= 0 && distance < num_distances) return table[distance];
  if (zero_beyond) return 0.0f;
  return table[distance < 0 ? 0 : num_distances - 1];
}

// Returns the sum of the biases of a query and a key. row, token: the batch row and the token of the query. head,
// kv_head: the q head and its kv head. index: the index of the key in its row. distance: the position of the query
// minus the position of the key.
KVC_HOST_DEVICE float bias_of(const kvc_backend_bias& bias, uint32_t flags, int64_t row, int64_t token, int64_t head,
                              int64_t kv_head, int64_t index, int32_t distance) {
  float sum = 0.0f;
  if (bias.relative != nullptr) {
    const float* const table = bias.relative + token * bias.relative_token_stride + head * bias.relative_head_stride;
    sum = relative_entry(table, bias.num_distances, (flags & KVC_ATTEND_REL_BIAS_ZERO) != 0, distance);
  }
  if (bias.keys == nullptr) return sum;
  return sum + bias.keys[row * bias.key_row_stride + index * bias.key_stride + kv_head * bias.key_head_stride];
}

// Returns whether the call has a mask that hides the key from the query.
KVC_HOST_DEVICE bool mask_hides(const kvc_backend_bias& bias, int64_t token, int64_t kv_head, int64_t index) {
  if (bias.mask == nullptr) return false;
  return bias.mask[token * bias.mask_token_stride + kv_head * bias.mask_head_stride + index] == 0;
}

}  // namespace kvc::kernels

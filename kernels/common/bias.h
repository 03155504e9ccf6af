// Relative and key biases of scores, and the mask of a call (kvc_backend_bias). The one place that finds their entries.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kvcache_backend.h"

namespace kvc::kernels {

KVC_HOST_DEVICE bool has_bias(const kvc_backend_bias& bias) { return bias.relative != nullptr || bias.keys != nullptr; }

// Whether the call has a bias or a mask. Kernels with tensor cores have neither.
KVC_HOST_DEVICE bool has_bias_or_mask(const kvc_backend_bias& bias) { return has_bias(bias) || bias.mask != nullptr; }

// The relative bias of a query `distance` positions after a key. table: of the query and its head.
KVC_HOST_DEVICE float relative_entry(const float* table, int32_t num_distances, bool zero_beyond, int32_t distance) {
  if (distance >= 0 && distance < num_distances) return table[distance];
  if (zero_beyond) return 0.0f;
  return table[distance < 0 ? 0 : num_distances - 1];
}

// What the score of a query and a key gets: of q head `head` and kv head `kv_head`. token: of the rows. index: the
// key's, in its row. distance: p_q - p_k.
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

// Whether the mask of the call, if it has one, hides a key from a query.
KVC_HOST_DEVICE bool mask_hides(const kvc_backend_bias& bias, int64_t token, int64_t kv_head, int64_t index) {
  if (bias.mask == nullptr) return false;
  return bias.mask[token * bias.mask_token_stride + kv_head * bias.mask_head_stride + index] == 0;
}

}  // namespace kvc::kernels

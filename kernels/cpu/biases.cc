// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/biases.h"

namespace kvc::kernels {

void add_biases(const kvc_backend_attend& args, const BiasRow& row, const BiasKeys& keys, float* scores, int stride) {
  const kvc_backend_bias& bias = args.bias;
  const uint32_t flags = args.plan->flags;
  for (int32_t i = 0; i < keys.count; ++i) {
    scores[i * stride] += bias_of(bias, flags, row.place.row, row.place.token, row.head, row.kv_head, keys.indexes[i],
                                  row.position - keys.positions[i]);
  }
}

uint32_t unmasked_keys(const kvc_backend_attend& args, int32_t token, int32_t kv_head, const BiasKeys& keys) {
  uint32_t bits = 0;
  for (int32_t i = 0; i < keys.count; ++i) {
    if (!mask_hides(args.bias, token, kv_head, keys.indexes[i])) bits |= 1u << i;
  }
  return bits;
}

}  // namespace kvc::kernels

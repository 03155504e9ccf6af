// Score options: softcap, ALiBi and biases. Without them, scores stay plain dot products (view.h), and nothing here
// runs. With one of them, one pass over the scores of a block converts them to natural-log units, before the mask.
// kernels/cpu/biases.h then adds the biases.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cpu/biases.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

struct ScoreOptions {
  bool any;
  float scale;                // of dot products; with a softcap, softmax scale / softcap
  float softcap;              // 0 = none
  const float* alibi_slopes;  // [Hq] of the item's row, nullable
  bool signed_distances;      // of ALiBi; else their magnitudes
  bool biases;                // relative or key biases
};

static ScoreOptions score_options(const kvc_backend_attend* args, int32_t row, double softmax_scale) {
  ScoreOptions options;
  options.biases = has_bias(args->bias);
  options.any = args->softcap != 0.0 || args->alibi_slopes != nullptr || options.biases;
  options.scale = static_cast<float>(args->softcap != 0.0 ? softmax_scale / args->softcap : softmax_scale);
  options.softcap = static_cast<float>(args->softcap);
  options.alibi_slopes = args->alibi_slopes == nullptr ? nullptr : args->alibi_slopes + row * args->alibi_row_stride;
  options.signed_distances = (args->plan->flags & KVC_ATTEND_ALIBI_SIGNED) != 0;
  return options;
}

// Within 3 ulp. Far from 0 it is +-1. NaN gives NaN.
KVC_INLINE F32 tanh(F32 x) {
  const F32 magnitude = max(x, sub(zero(), x)), one = set1(1.0f), square = mul(x, x);
  F32 p = fma(set1(KVC_TANH_C4), square, set1(KVC_TANH_C3));  // x + x^3 * p, where 1 - e^(-2x) would lose digits
  p = fma(p, square, set1(KVC_TANH_C2));
  p = fma(p, square, set1(KVC_TANH_C1));
  p = fma(p, square, set1(KVC_TANH_C0));
  const F32 near = fma(mul(x, square), p, x);
  const F32 e = exp2(mul(magnitude, set1(-2.88539008f)));  // e^(-2|x|)
  const F32 far = div(sub(one, e), add(one, e));
  return select_less(magnitude, set1(0.625f), near, select_less(x, zero(), sub(zero(), far), far));
}

// Scores of dot products. slopes and distances (p_q - p_k) are read only if there is ALiBi.
KVC_INLINE F32 score_of(const ScoreOptions& options, F32 dots, F32 slopes, F32 distances) {
  F32 scores = mul(dots, set1(options.scale));
  if (options.softcap != 0.0f) scores = mul(tanh(scores), set1(options.softcap));
  if (options.alibi_slopes == nullptr) return scores;
  const F32 weighted = options.signed_distances ? distances : max(distances, sub(zero(), distances));
  return sub(scores, mul(slopes, weighted));
}

}  // namespace kvc::kernels::KVC_TARGET

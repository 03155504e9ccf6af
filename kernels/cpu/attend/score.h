// The score options are softcap, ALiBi and biases. If a call has one of them, one pass over the dot products of a block
// converts them to scores in natural-log units, before the mask is applied. Then kernels/cpu/biases.h adds the biases.
// In calls without options, scores stay plain dot products (view.h), and this pass does not run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/mask.h"
#include "kernels/cpu/biases.h"
#include "kernels/cpu/simd/target.h"

namespace kvc::kernels::KVC_TARGET {

struct ScoreOptions {
  bool any;
  float scale;                // the factor of dot products: the softmax scale, divided by the softcap if there is one
  float softcap;              // 0 = none
  const float* alibi_slopes;  // [Hq] of the item's row; null: no ALiBi
  bool signed_distances;      // ALiBi uses distances with their sign; else their magnitudes
  bool biases;                // there are relative or key biases
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

// Returns tanh(x) within 3 ulp. If |x| is large, the result is 1 or -1. The result for NaN is NaN.
KVC_INLINE F32 tanh(F32 x) {
  const F32 magnitude = max(x, sub(zero(), x)), one = set1(1.0f), square = mul(x, x);
  // Near 0 the result is x + x^3 * p, because 1 - e^(-2x) would lose digits there.
  F32 p = fma(set1(KVC_TANH_C4), square, set1(KVC_TANH_C3));
  p = fma(p, square, set1(KVC_TANH_C2));
  p = fma(p, square, set1(KVC_TANH_C1));
  p = fma(p, square, set1(KVC_TANH_C0));
  const F32 near = fma(mul(x, square), p, x);
  const F32 e = exp2(mul(magnitude, set1(-2.88539008f)));  // e^(-2|x|)
  const F32 far = div(sub(one, e), add(one, e));
  return select_less(magnitude, set1(0.625f), near, select_less(x, zero(), sub(zero(), far), far));
}

// Returns the scores of dot products. slopes and distances (p_q - p_k) are read only with ALiBi.
KVC_INLINE F32 score_of(const ScoreOptions& options, F32 dots, F32 slopes, F32 distances) {
  F32 scores = mul(dots, set1(options.scale));
  if (options.softcap != 0.0f) scores = mul(tanh(scores), set1(options.softcap));
  if (options.alibi_slopes == nullptr) return scores;
  const F32 weighted = options.signed_distances ? distances : max(distances, sub(zero(), distances));
  return sub(scores, mul(slopes, weighted));
}

}  // namespace kvc::kernels::KVC_TARGET

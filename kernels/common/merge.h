// Partial softmax states and their merge: the only merge code, host and device.
//
// State of one query and head over some keys: m = largest scaled score (natural log) or one not far below it (the CPU's
// panel kernel: kMaxRise), l = sum of exp(score - m), o = sum of exp(score - m) * v. Empty: m = -inf, l = 0, o = 0.
// Merging is associative and commutative within rounding, the empty state is its neutral element, and no merge of
// states makes a NaN out of numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>

#include "kernels/common/annotate.h"

namespace kvc::kernels {

struct MergeWeights {
  float m;  // of the merged state
  float a;  // what l and o of the first state are multiplied by
  float b;  // and of the second
};

KVC_HOST_DEVICE MergeWeights merge_weights(float m_a, float m_b) {
  MergeWeights weights;
  weights.m = m_a > m_b ? m_a : m_b;
  // An equal maximum has weight 1, and two empties (-inf, -inf) stay empty: no inf - inf.
  weights.a = m_a == weights.m ? 1.0f : expf(m_a - weights.m);
  weights.b = m_b == weights.m ? 1.0f : expf(m_b - weights.m);
  return weights;
}

// Merges state b into state a. o: [dims]. What is empty changes no bit of the other.
KVC_HOST_DEVICE void merge_state(float* o_a, float* m_a, float* l_a, const float* o_b, float m_b, float l_b,
                                 int32_t dims) {
  if (l_b == 0.0f) return;
  if (*l_a == 0.0f) {
    *m_a = m_b;
    *l_a = l_b;
    for (int32_t d = 0; d < dims; ++d) o_a[d] = o_b[d];
    return;
  }
  const MergeWeights weights = merge_weights(*m_a, m_b);
  *m_a = weights.m;
  *l_a = *l_a * weights.a + l_b * weights.b;
  for (int32_t d = 0; d < dims; ++d) o_a[d] = o_a[d] * weights.a + o_b[d] * weights.b;
}

// What a finished state becomes.
struct FinalState {
  double scale;  // what o is multiplied by: 0 for a row that saw nothing
  float lse;     // natural log of the denominator; -inf for a row that saw nothing
};

// sink: a logit that joins the denominator and has no value, like the state (m = sink, l = 1, o = 0); nullable.
KVC_HOST_DEVICE FinalState final_state(double m, double l, const float* sink) {
  double weight = 1.0;
  if (sink != nullptr) {
    const double logit = static_cast<double>(*sink), largest = m > logit ? m : logit;
    weight = m == largest ? 1.0 : exp(m - largest);
    l = l * weight + (logit == largest ? 1.0 : exp(logit - largest));
    if (m == logit && m == -INFINITY) l = 0.0;  // a sink of -inf is none
    m = largest;
  }
  FinalState state;
  state.scale = l == 0.0 ? 0.0 : weight / l;
  state.lse = l == 0.0 ? -INFINITY : static_cast<float>(m + log(l));
  return state;
}

}  // namespace kvc::kernels

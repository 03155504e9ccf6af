// Defines partial softmax states and their merge, for host and device. All merges of states use these functions.
//
// The state of one query and head over some keys is (m, l, o):
//   m  the largest scaled score, in natural-log units. The CPU's panel kernel may use a slightly lower m (kMaxRise).
//   l  the sum of exp(score - m)
//   o  the sum of exp(score - m) * v
// The empty state is m = -inf, l = 0, o = 0, and a merge with it changes nothing. Merging is associative and
// commutative within rounding. A merge of finite states never gives NaN.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <math.h>

#include "kernels/common/annotate.h"

namespace kvc::kernels {

KVC_HOST_DEVICE float exp_of(float x) { return expf(x); }
KVC_HOST_DEVICE double exp_of(double x) { return exp(x); }

template <class Sum>
struct MergeWeights {
  float m;  // m of the merged state
  Sum a;    // the factor for l and o of the first state
  Sum b;    // the factor for l and o of the second state
};

template <class Sum>
KVC_HOST_DEVICE MergeWeights<Sum> merge_weights(float m_a, float m_b) {
  MergeWeights<Sum> weights;
  weights.m = m_a > m_b ? m_a : m_b;
  // A state whose m is the merged maximum has weight 1. So a merge of two empty states never computes -inf - -inf, and
  // its result is the empty state.
  weights.a = m_a == weights.m ? Sum(1) : exp_of(Sum(m_a) - Sum(weights.m));
  weights.b = m_b == weights.m ? Sum(1) : exp_of(Sum(m_b) - Sum(weights.m));
  return weights;
}

// Merges state b into state a. o: [dims]. If one of the states is empty, the result has the bits of the other state.
// Sum is float, or double where many states are merged one after another. With double, the error does not grow with the
// number of states.
template <class Sum>
KVC_HOST_DEVICE void merge_state(Sum* o_a, float* m_a, Sum* l_a, const float* o_b, float m_b, float l_b, int32_t dims) {
  if (l_b == 0.0f) return;
  if (*l_a == Sum(0)) {
    *m_a = m_b;
    *l_a = l_b;
    for (int32_t d = 0; d < dims; ++d) o_a[d] = o_b[d];
    return;
  }
  const MergeWeights<Sum> weights = merge_weights<Sum>(*m_a, m_b);
  *m_a = weights.m;
  *l_a = *l_a * weights.a + Sum(l_b) * weights.b;
  for (int32_t d = 0; d < dims; ++d) o_a[d] = o_a[d] * weights.a + Sum(o_b[d]) * weights.b;
}

struct FinalState {
  double scale;  // the factor that normalises o; 0 for a row that saw no key
  float lse;     // natural log of the denominator; -inf for a row that saw no key
};

// Finishes a state. sink: nullable; the logit of an attention sink, which counts in the denominator only. The result is
// the same as after a merge with the state (m = sink, l = 1, o = 0).
KVC_HOST_DEVICE FinalState final_state(double m, double l, const float* sink) {
  double weight = 1.0;
  if (sink != nullptr) {
    const double logit = static_cast<double>(*sink), largest = m > logit ? m : logit;
    weight = m == largest ? 1.0 : exp(m - largest);
    l = l * weight + (logit == largest ? 1.0 : exp(logit - largest));
    if (m == logit && m == -INFINITY) l = 0.0;  // a sink of -inf counts as no sink
    m = largest;
  }
  FinalState state;
  state.scale = l == 0.0 ? 0.0 : weight / l;
  state.lse = l == 0.0 ? -INFINITY : static_cast<float>(m + log(l));
  return state;
}

// Returns the scale and the LSE of final_state as float32, for kernels that do not need both. Without a sink, the scale
// takes one float32 division. It has the same bits, because a float32 quotient does not change if it is computed in
// float64 and rounded.
KVC_HOST_DEVICE float final_scale(float m, float l, const float* sink) {
  if (sink == nullptr) return l == 0.0f ? 0.0f : 1.0f / l;
  return static_cast<float>(final_state(static_cast<double>(m), static_cast<double>(l), sink).scale);
}
KVC_HOST_DEVICE float final_lse(float m, float l, const float* sink) {
  return final_state(static_cast<double>(m), static_cast<double>(l), sink).lse;
}

}  // namespace kvc::kernels

// Computes the frequencies of rotary position embedding, in float64, from a layer's rope_theta and rope_scaling.
// docs/reference/rope.md has the formulas and their sources. All functions are pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace kvc {

// Pair i at position p is rotated by the angle p * inverse[i]. cos and sin are multiplied by attention_factor.
struct RopeFrequencies {
  std::vector<double> inverse;  // [rope_dim / 2]
  double attention_factor = 1.0;
  bool operator==(const RopeFrequencies&) const = default;
};

// Checks that the scaling is valid for `rope_dim` dims (even, > 0) and for base `theta` > 0. `layer` is used only in
// the message. Kind KVC_ROPE_SCALING_NONE with every other field 0 is valid and scales nothing.
Status check_rope_scaling(const kvc_rope_scaling& scaling, int32_t rope_dim, double theta, int64_t layer);

// Returns one set of frequencies. For longrope, returns two sets: the short one and then the long one. The scaling must
// have passed check_rope_scaling.
std::vector<RopeFrequencies> make_rope_frequencies(const kvc_rope_scaling& scaling, int32_t rope_dim, double theta);

}  // namespace kvc

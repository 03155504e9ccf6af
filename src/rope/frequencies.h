// Frequencies of rotary position embedding: what a layer's rope_theta and rope_scaling mean, in float64.
// docs/reference/rope.md has the formulas and where they come from. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace kvc {

// Pair i at position p turns by p * inverse[i]; cos and sin are multiplied by attention_factor.
struct RopeFrequencies {
  std::vector<double> inverse;  // [rope_dim / 2]
  double attention_factor = 1.0;
  bool operator==(const RopeFrequencies&) const = default;
};

// Whether the scaling makes sense for `rope_dim` dims, even and positive, and base `theta` > 0; `layer` is for the
// message. Kind KVC_ROPE_SCALING_NONE with every other field 0 is no scaling.
Status check_rope_scaling(const kvc_rope_scaling& scaling, int32_t rope_dim, double theta, int64_t layer);

// Of a scaling that passed the check: one set, or longrope's two, short and long.
std::vector<RopeFrequencies> make_rope_frequencies(const kvc_rope_scaling& scaling, int32_t rope_dim, double theta);

}  // namespace kvc

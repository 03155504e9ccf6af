// The geometry of a recurrent layer: its state tensors, one after the other in a page. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "layer/geometry.h"

namespace kvc {

constexpr int32_t kMaxStates = 16;  // largest number of states of a layer

// Reads how many states of a sequence are kept besides its current state. limits.tree_nodes must be set before.
Status read_state_limits(const kvc_cache_config& config, bool recurrent, Geometry* geometry);

// Checks a layer of a recurrent group, and adds it to the geometry.
Status make_recurrent_layer(const kvc_layer_config& config, const std::vector<kvc_state_config>& states, int64_t index,
                            Geometry* geometry);

}  // namespace kvc

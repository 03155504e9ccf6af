// Layers of groups with latent rows (multi-head latent attention, MLA). A token is one row [latent | rotary] that
// serves all heads. K is the row and V its latent part, so V is never stored, given or moved apart from K. Pure
// functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Checks the fields of a layer with latent rows, and fills in v_head_dim, rope_offset and v_scales.
Status read_latent_layer(int64_t index, kvc_layer_config* config);

// New rows: k alone, or their latent part as v and the rotary part as k.
Status check_latent_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                         KvRows* out);

}  // namespace kvc

// Checks layers of groups with latent rows (multi-head latent attention, MLA). A token has one row [latent | rotary]
// for all heads. K is the whole row, and V is the latent part of the row. So V is never stored or moved apart from K.
// The functions are pure, and any thread may call them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Checks the fields of a layer with latent rows. Sets v_head_dim and v_scales, and rope_offset if it is 0.
Status read_latent_layer(int64_t index, kvc_layer_config* config);

// Checks new rows. The caller gives the whole row as k, or the latent part as v and the rotary part as k.
Status check_latent_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                         KvRows* out);

}  // namespace kvc

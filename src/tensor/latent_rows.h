// Layers of an MLA group (multi-head latent attention): a token is one row [latent | rotary] that serves all heads. K
// is the row and V its latent part, so nothing of V is stored, given or moved apart. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Checks a layer's fields against the kind of its group. Of an MLA layer fills in what is left: v_head_dim,
// rope_offset, v_scales.
Status read_latent_layer(int32_t group_kind, int64_t index, kvc_layer_config* config);

// New rows: k alone, or their latent part as v and the rotary part as k.
Status check_latent_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                         KvRows* out);

}  // namespace kvc

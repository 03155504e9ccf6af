// Layers that store K and no V (KVC_LAYER_KEYS_ONLY): the index keys of a model with an indexer. To a backend they are
// latent rows without dims of V, so a row is stored, moved and copied once. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Checks the fields of such a layer, and fills in v_scales. encoder: its group is a cross group.
Status read_key_layer(int64_t index, bool encoder, kvc_layer_config* config);

// New rows: k alone.
Status check_key_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                      KvRows* out);

}  // namespace kvc

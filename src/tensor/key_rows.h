// Checks layers that store K and no V (KVC_LAYER_KEYS_ONLY), such as the index keys of a model that selects keys. For a
// backend, the rows of these layers are latent rows without dims of V. The functions are pure, and any thread may call
// them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Checks the fields of a layer of keys only, and sets v_scales to k_scales. encoder: whether the group of the layer is
// an encoder group.
Status read_key_layer(int64_t index, bool encoder, kvc_layer_config* config);

// Checks new rows of such a layer. The caller must give k, and no v.
Status check_key_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                      KvRows* out);

}  // namespace kvc

#include "tensor/key_rows.h"

#include <cinttypes>

#include "kernels/common/stored_format.h"

namespace kvc {

Status read_key_layer(int64_t index, bool encoder, kvc_layer_config* config) {
  kvc_layer_config& c = *config;
  const struct {
    const char* name;
    int64_t value;
    bool wrong;
  } fields[] = {
      {"a cross group", c.group, encoder},
      {"latent_dim", c.latent_dim, c.latent_dim != 0},
      {"v_head_dim", c.v_head_dim, c.v_head_dim != 0},
      {"kv_layer", c.kv_layer, c.kv_layer != 0},
      {"rope_mode", c.rope_mode, c.rope_mode == KVC_ROPE_ON_READ},
      {"v_scales of num_scales", c.num_scales, c.v_scales != nullptr},
  };
  for (const auto& field : fields) {
    if (!field.wrong) continue;
    return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                         "layer %" PRId64 ": KVC_LAYER_KEYS_ONLY does not go with %s %" PRId64, index, field.name,
                         field.value)
        .at(index);
  }
  c.v_scales = c.k_scales;
  return Status();
}

Status check_key_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                      KvRows* out) {
  if (tensors.v != nullptr || tensors.v_scale != nullptr) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is given, and the layer stores keys only",
                         tensors.v != nullptr ? "v" : "v_scale");
  }
  const kvc_backend_row_format* stored = tensors.as_stored ? &layer.format.k : nullptr;
  KVC_TRY(check_rows(tensors.k, {"k", tokens, layer.num_kv_heads, layer.head_dim, device, false, stored}, &out->k));
  return check_scale_rows(tensors.k_scale, "k_scale", out->k, layer, tokens, device, &out->k_scale);
}

}  // namespace kvc

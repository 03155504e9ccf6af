// append: rounds (and rotates) a step's K and V rows into their slots.
// Roofline: reads the new rows once and writes them once.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {
namespace {

struct Source {
  const unsigned char* data;
  Type type;
  int64_t token_bytes, head_bytes;
};

Source source_of(const kvc_backend_tensor& tensor) {
  const Type type = type_of(tensor.dtype);
  return {static_cast<const unsigned char*>(tensor.data), type, tensor.token_stride * type_bytes(type),
          tensor.head_stride * type_bytes(type)};
}

struct Target {
  unsigned char* data;
  Type type;
  int32_t page_size;
  int64_t page_bytes, head_bytes, slot_bytes;
};

Target target_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool) {
  const Type type = type_of(layer.dtype);
  const int64_t bytes = type_bytes(type);
  return {static_cast<unsigned char*>(pool.data),
          type,
          layer.page_size,
          pool.page_stride * bytes,
          pool.head_stride * bytes,
          pool.slot_stride * bytes};
}

// Stores one token's heads. cos_sin: null, or the token's.
void append_token(const Implementation& implementation, const Source& source, const Target& target, int64_t token,
                  int64_t slot, const kvc_backend_layer& layer, int32_t dims, const float* cos_sin) {
  const unsigned char* from = source.data + token * source.token_bytes;
  unsigned char* to =
      target.data + slot / target.page_size * target.page_bytes + slot % target.page_size * target.slot_bytes;
  for (int32_t h = 0; h < layer.num_kv_heads; ++h, from += source.head_bytes, to += target.head_bytes) {
    if (cos_sin == nullptr) {
      implementation.convert_row(target.type, to, source.type, from, dims);
    } else {
      float row[kMaxHeadDim];
      implementation.convert_row(Type::kF32, row, source.type, from, dims);
      implementation.rotate_row(&layer, cos_sin, row);
      implementation.convert_row(target.type, to, Type::kF32, row, dims);
    }
  }
}

}  // namespace

kvc_status append(kvc_backend_device* device, const kvc_backend_append* args, void*, kvc_error*) {
  const kvc_backend_layer& layer = *args->layer;
  const Source k_source = source_of(args->k), v_source = source_of(args->v);
  const Target k_target = target_of(layer, layer.k), v_target = target_of(layer, layer.v);
  const int64_t token_bytes = static_cast<int64_t>(layer.num_kv_heads) * (layer.head_dim + layer.v_head_dim) * 4;
  parallel_chunks(device, args->num_tokens, token_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = args->slots[t];
      if (slot < 0) continue;
      const float* cos_sin = args->cos_sin == nullptr ? nullptr : args->cos_sin + t * layer.rope_dim;
      append_token(*device->implementation, k_source, k_target, t, slot, layer, layer.head_dim, cos_sin);
      append_token(*device->implementation, v_source, v_target, t, slot, layer, layer.v_head_dim, nullptr);
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels

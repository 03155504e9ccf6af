// append: rounds or quantises (and rotates) a step's K and V rows into their slots.
// Roofline: reads the new rows once and writes them once.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/scales.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {
namespace {

struct Source {
  const unsigned char* data;
  Type type;
  int64_t token_bytes, head_bytes;
  const kvc_backend_tensor* scales;  // of rows that are int8 already
};

Source source_of(const kvc_backend_tensor& tensor, const kvc_backend_tensor& scales) {
  const Type type = type_of(tensor.dtype);
  return {static_cast<const unsigned char*>(tensor.data), type, tensor.token_stride * type_bytes(type),
          tensor.head_stride * type_bytes(type), &scales};
}

float scale_of_row(const Source& source, int64_t token, int32_t head) {
  const kvc_backend_tensor& scales = *source.scales;
  return static_cast<const float*>(scales.data)[token * scales.token_stride + head * scales.head_stride];
}

struct Target {
  unsigned char* data;
  Type type;
  int32_t page_size;
  int64_t page_bytes, head_bytes, slot_bytes;
  const kvc_backend_scales* scales;
};

Target target_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, const kvc_backend_scales& scales) {
  const Type type = type_of(layer.dtype);
  const int64_t bytes = type_bytes(type);
  return {static_cast<unsigned char*>(pool.data),
          type,
          layer.page_size,
          pool.page_stride * bytes,
          pool.head_stride * bytes,
          pool.slot_stride * bytes,
          &scales};
}

// One row to float32, rotated if cos_sin is given.
void load_row(const Implementation& implementation, const Source& source, const unsigned char* from, int32_t dims,
              const float* cos_sin, const kvc_backend_layer& layer, float* row) {
  implementation.convert_row(Type::kF32, row, source.type, from, dims);
  if (cos_sin != nullptr) implementation.rotate_row(&layer, cos_sin, row);
}

// Stores one token's heads. cos_sin: null, or the token's.
void append_token(const Implementation& implementation, const Source& source, const Target& target, int64_t token,
                  int64_t slot, const kvc_backend_layer& layer, int32_t dims, const float* cos_sin) {
  const unsigned char* from = source.data + token * source.token_bytes;
  const int64_t page = slot / target.page_size, offset = slot % target.page_size;
  unsigned char* to = target.data + page * target.page_bytes + offset * target.slot_bytes;
  const bool quantise = is_quantised(target.type) && source.type != target.type;
  const bool token_scales = has_token_scales(target.scales);
  for (int32_t h = 0; h < layer.num_kv_heads; ++h, from += source.head_bytes, to += target.head_bytes) {
    float row[kMaxHeadDim];
    if (quantise) {
      load_row(implementation, source, from, dims, cos_sin, layer, row);
      const float scale = implementation.quantise_row(target.type, to, row, dims, head_scale(target.scales, h));
      if (token_scales) *token_scale(target.scales, page, h, offset) = scale;
    } else if (cos_sin != nullptr) {
      load_row(implementation, source, from, dims, cos_sin, layer, row);
      implementation.convert_row(target.type, to, Type::kF32, row, dims);
    } else {
      implementation.convert_row(target.type, to, source.type, from, dims);
      if (token_scales) *token_scale(target.scales, page, h, offset) = scale_of_row(source, token, h);
    }
  }
}

}  // namespace

kvc_status append(kvc_backend_device* device, const kvc_backend_append* args, void*, kvc_error*) {
  const kvc_backend_layer& layer = *args->layer;
  const Source k_source = source_of(args->k, args->k_scale), v_source = source_of(args->v, args->v_scale);
  const Target k_target = target_of(layer, layer.k, layer.k_scales);
  const Target v_target = target_of(layer, layer.v, layer.v_scales);
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

// append() stores a step's rows of K and V in their slots. It first rotates K if the call has cos and sin, and then
// rounds or quantises all rows. Roofline: it reads the new rows once and writes them once.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/hadamard.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/nibbles.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stream.h"

namespace kvc::kernels {
namespace {

constexpr int64_t kPrefetchBytes = 4096;

struct Source {
  const unsigned char* data;
  Type type;
  int64_t token_bytes, head_bytes;
  const kvc_backend_tensor* scales;  // read if the source is already quantised and each of its rows has a scale
};

Source source_of(const kvc_backend_layer& layer, const kvc_backend_tensor& tensor, const kvc_backend_tensor& scales) {
  const Type type = type_of_rows(layer, tensor.dtype);
  return {static_cast<const unsigned char*>(tensor.data), type, tensor.token_stride * element_bytes(type),
          tensor.head_stride * element_bytes(type), &scales};
}

float scale_of_row(const Source& source, int64_t token, int32_t head) {
  const kvc_backend_tensor& scales = *source.scales;
  return static_cast<const float*>(scales.data)[token * scales.token_stride + head * scales.head_stride];
}

struct Target {
  unsigned char* data;
  Type type;
  int32_t page_size;
  int64_t page_bytes, head_bytes, slot_bytes;  // strides from one page, head or slot to the next
  int64_t row_bytes;
  const kvc_backend_scales* scales;
  int32_t rotation;  // block size of rows that are stored rotated (hadamard.h); 0: not rotated
  bool stream;       // whether stores bypass the CPU caches
};

Target target_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, const kvc_backend_scales& scales,
                 int32_t dims, bool stream) {
  return {static_cast<unsigned char*>(pool.data),
          stored_type(layer),
          layer.page_size,
          pool.page_stride_bytes,
          pool.head_stride_bytes,
          pool.slot_stride_bytes,
          pool.row_bytes,
          &scales,
          rotation_block(layer, dims),
          stream};
}

// Converts one row to float32. If cos_sin is given, also rotates the row.
void load_row(const Implementation& implementation, const Source& source, const unsigned char* from, int32_t dims,
              const float* cos_sin, const kvc_backend_layer& layer, float* row) {
  implementation.convert_row(Type::kF32, row, source.type, from, dims);
  if (cos_sin != nullptr) implementation.rotate_row(&layer, cos_sin, row);
}

// Where one row of a token is stored.
struct Place {
  unsigned char* data;
  int64_t page, offset;
  int32_t head;
};

Place place_of(const Target& target, int64_t slot) {
  const int64_t page = slot / target.page_size, offset = slot % target.page_size;
  return {target.data + page * target.page_bytes + offset * target.slot_bytes, page, offset, 0};
}

// Stores a row: converts it to a type that is not quantised, or copies it if it already has the stored type.
void convert_row(const Implementation& implementation, const Target& target, const Place& place, Type type,
                 const void* row, int32_t dims) {
  if (!target.stream) {
    if (type == target.type) {
      memcpy(place.data, row, static_cast<size_t>(target.row_bytes));
    } else {
      implementation.convert_row(target.type, place.data, type, row, dims);
    }
    return;
  }
  unsigned char converted[kMaxHeadDim * sizeof(float)];
  const auto* stored = static_cast<const unsigned char*>(row);
  if (type != target.type) {
    implementation.convert_row(target.type, converted, type, row, dims);
    stored = converted;
  }
  stream_bytes(place.data, stored, target.row_bytes, stored + target.row_bytes);
}

// Stores an MLA row of fp8_ds_mla (ds_mla_row.h).
void store_ds_mla(const Implementation& implementation, const float* row, unsigned char* target) {
  for (int32_t begin = 0; begin < kDsMlaLatentDims; begin += kDsMlaScaleDims) {
    uint32_t largest = 0;
    for (int32_t d = begin; d < begin + kDsMlaScaleDims; ++d) {
      const uint32_t magnitude = float_bits(row[d]) & 0x7fffffffu;
      largest = magnitude > largest ? magnitude : largest;
    }
    const float scale = ds_mla_scale_of(largest);
    set_ds_mla_scale(target, begin, scale);
    if (scale == scale) {
      implementation.quantise_row(Type::kE4m3, target + begin, row + begin, kDsMlaScaleDims, scale);
    } else {
      memset(target + begin, 0, kDsMlaScaleDims);
    }
  }
  implementation.convert_row(Type::kBf16, target + kDsMlaRotaryAt, Type::kF32, row + kDsMlaLatentDims,
                             kDsMlaRotaryDims);
}

// Rounds or quantises a float32 row and stores it. It may change `row`.
void store_row(const Implementation& implementation, const Target& target, const Place& place, float* row,
               int32_t dims) {
  if (!is_quantised(target.type)) {
    convert_row(implementation, target, place, Type::kF32, row, dims);
    return;
  }
  if (target.type == Type::kE2m1) {
    quantise_blocks(row, dims, head_scale(target.scales, place.head), place.data);
    return;
  }
  if (target.type == Type::kDsMla) {
    store_ds_mla(implementation, row, place.data);
    return;
  }
  float scale;
  if (target.rotation > 0) {
    spread_row(row, dims, target.rotation);
    scale = quantise_nibbles(row, dims, place.data);
  } else {
    scale = implementation.quantise_row(target.type, place.data, row, dims, head_scale(target.scales, place.head));
  }
  if (has_token_scales(target.scales)) *token_scale(target.scales, place.page, place.head, place.offset) = scale;
}

// Stores the rows of all heads of one token. cos_sin: of that token; nullable.
void append_token(const Implementation& implementation, const Source& source, const Target& target, int64_t token,
                  int64_t slot, const kvc_backend_layer& layer, int32_t dims, const float* cos_sin) {
  const unsigned char* from = source.data + token * source.token_bytes;
  Place place = place_of(target, slot);
  const bool quantise = is_quantised(target.type) && source.type != target.type;
  const bool token_scales = has_token_scales(target.scales);
  for (; place.head < layer.num_kv_heads; ++place.head) {
    if (quantise || cos_sin != nullptr) {
      float row[kMaxHeadDim];
      load_row(implementation, source, from, dims, cos_sin, layer, row);
      store_row(implementation, target, place, row, dims);
    } else {
      convert_row(implementation, target, place, source.type, from, dims);
      if (token_scales) {
        *token_scale(target.scales, place.page, place.head, place.offset) = scale_of_row(source, token, place.head);
      }
    }
    from += source.head_bytes;
    place.data += target.head_bytes;
  }
}

// Stores the MLA row of one token from its two parts: `latent` [Dv] and `rotary` [D - Dv].
void append_parts(const Implementation& implementation, const Source& latent, const Source& rotary,
                  const Target& target, int64_t token, int64_t slot, const kvc_backend_layer& layer,
                  const float* cos_sin) {
  float row[kMaxHeadDim];
  const int32_t latent_dims = layer.v_head_dim;
  implementation.convert_row(Type::kF32, row, latent.type, latent.data + token * latent.token_bytes, latent_dims);
  implementation.convert_row(Type::kF32, row + latent_dims, rotary.type, rotary.data + token * rotary.token_bytes,
                             layer.head_dim - latent_dims);
  if (cos_sin != nullptr) implementation.rotate_row(&layer, cos_sin, row);
  store_row(implementation, target, place_of(target, slot), row, layer.head_dim);
}

}  // namespace

kvc_status append(kvc_backend_device* device, const kvc_backend_append* args, void*, kvc_error*) {
  const kvc_backend_layer& layer = *args->layer;
  const bool has_v_rows = layer.row_kind != KVC_BACKEND_ROW_LATENT;
  const bool in_parts = !has_v_rows && args->v.data != nullptr;
  const Source k_source = source_of(layer, args->k, args->k_scale);
  const Source v_source = in_parts || has_v_rows ? source_of(layer, args->v, args->v_scale) : Source{};
  const int64_t token_elements = static_cast<int64_t>(layer.num_kv_heads) * (layer.head_dim + layer.v_head_dim);
  const int64_t token_bytes = layer.num_kv_heads * (layer.k.row_bytes + layer.v.row_bytes);
  const bool stream = args->num_tokens * token_bytes >= kStreamBytes;
  const Target k_target = target_of(layer, layer.k, layer.k_scales, layer.head_dim, stream);
  const Target v_target = target_of(layer, layer.v, layer.v_scales, layer.v_head_dim, stream);
  // Unless pages store all heads of a token together, the rows of one head are adjacent. Threads that write within 4
  // KiB of each other contend for cache lines, because the hardware prefetcher loads lines ahead within 4 KiB. So each
  // chunk of tokens covers at least 4 KiB.
  const int64_t apart_tokens = k_target.row_bytes < kPrefetchBytes ? kPrefetchBytes / k_target.row_bytes : 1;
  const auto store = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = args->slots[t];
      if (slot < 0) continue;
      const float* cos_sin = args->cos_sin == nullptr ? nullptr : args->cos_sin + t * layer.rope_dim;
      if (in_parts) {
        append_parts(*device->implementation, v_source, k_source, k_target, t, slot, layer, cos_sin);
        continue;
      }
      append_token(*device->implementation, k_source, k_target, t, slot, layer, layer.head_dim, cos_sin);
      if (!has_v_rows) continue;
      append_token(*device->implementation, v_source, v_target, t, slot, layer, layer.v_head_dim, nullptr);
    }
    if (stream) end_stream();
  };
  parallel_chunks(device, args->num_tokens, token_elements * 4, store, apart_tokens);
  return KVC_OK;
}

}  // namespace kvc::kernels

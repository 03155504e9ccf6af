// copy_slots and gather: stored bytes and their scales moved as they are.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/scales.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {
namespace {

unsigned char* slot_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int64_t slot) {
  return static_cast<unsigned char*>(pool.data) +
         (slot / layer.page_size * pool.page_stride + slot % layer.page_size * pool.slot_stride) *
             type_bytes(type_of(layer.dtype));
}

// Calls visit(offset, bytes) for each contiguous block of `num_slots` slots of one page, all heads; offsets are bytes
// from the first slot's place.
template <class Visit>
void for_each_block(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims, int32_t num_slots,
                    Visit visit) {
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  const bool heads_adjoin = pool.head_stride == dims, slots_adjoin = pool.slot_stride == dims;
  const int64_t heads = heads_adjoin ? 1 : layer.num_kv_heads, slots = slots_adjoin ? 1 : num_slots;
  const int64_t block = (heads_adjoin ? layer.num_kv_heads : 1) * (slots_adjoin ? num_slots : 1) * dims * bytes;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t s = 0; s < slots; ++s) visit((h * pool.head_stride + s * pool.slot_stride) * bytes, block);
  }
}

// In one page source and target may overlap, the target below: blocks are in the order of their slots.
void copy_run(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims,
              const kvc_backend_slot_copy& copy) {
  const unsigned char* source = slot_of(layer, pool, copy.source_slot);
  unsigned char* target = slot_of(layer, pool, copy.target_slot);
  for_each_block(layer, pool, dims, copy.num_slots, [&](int64_t offset, int64_t bytes) {
    memmove(target + offset, source + offset, static_cast<size_t>(bytes));
  });
}

float* scale_of_slot(const kvc_backend_layer& layer, const kvc_backend_scales& scales, int32_t head, int64_t slot) {
  return token_scale(&scales, slot / layer.page_size, head, slot % layer.page_size);
}

// The same for scales that tokens have of their own.
void copy_scales(const kvc_backend_layer& layer, const kvc_backend_scales& scales, const kvc_backend_slot_copy& copy) {
  if (!has_token_scales(&scales)) return;
  for (int32_t h = 0; h < layer.num_kv_heads; ++h) {
    for (int32_t i = 0; i < copy.num_slots; ++i) {
      *scale_of_slot(layer, scales, h, copy.target_slot + i) = *scale_of_slot(layer, scales, h, copy.source_slot + i);
    }
  }
}

// Scales of one slot to compact [num_kv_heads].
void gather_scales(const kvc_backend_layer& layer, const kvc_backend_scales& scales, int64_t slot, float* target) {
  for (int32_t h = 0; h < layer.num_kv_heads; ++h) {
    target[h] = *scale_of_slot(layer, scales, h, slot);
  }
}

// Copies the rows of one slot to compact [num_kv_heads, dims].
void gather_slot(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims, int64_t slot,
                 unsigned char* target) {
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  const unsigned char* source = slot_of(layer, pool, slot);
  for (int32_t h = 0; h < layer.num_kv_heads; ++h) {
    memcpy(target + h * dims * bytes, source + h * pool.head_stride * bytes, static_cast<size_t>(dims * bytes));
  }
}

int64_t token_bytes(const kvc_backend_layer& layer) {
  return static_cast<int64_t>(layer.num_kv_heads) * (layer.head_dim + layer.v_head_dim) *
         type_bytes(type_of(layer.dtype));
}

}  // namespace

// On the calling thread: it holds the cache's lock.
kvc_status copy_slots(kvc_backend_device*, const kvc_backend_layer* layer, const kvc_backend_slot_copy* copies,
                      int64_t num_copies, void*, kvc_error*) {
  for (int64_t i = 0; i < num_copies; ++i) {
    copy_run(*layer, layer->k, layer->head_dim, copies[i]);
    copy_scales(*layer, layer->k_scales, copies[i]);
    if (layer->v_in_k != 0) continue;
    copy_run(*layer, layer->v, layer->v_head_dim, copies[i]);
    copy_scales(*layer, layer->v_scales, copies[i]);
  }
  return KVC_OK;
}

kvc_status gather(kvc_backend_device* device, const kvc_backend_gather* args, void*, kvc_error*) {
  const kvc_backend_layer& layer = *args->layer;
  const int64_t bytes = static_cast<int64_t>(layer.num_kv_heads) * type_bytes(type_of(layer.dtype));
  parallel_chunks(device, args->num_tokens, token_bytes(layer), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (args->k != nullptr) {
        gather_slot(layer, layer.k, layer.head_dim, args->slots[t],
                    static_cast<unsigned char*>(args->k) + t * layer.head_dim * bytes);
      }
      if (args->v != nullptr) {
        gather_slot(layer, layer.v, layer.v_head_dim, args->slots[t],
                    static_cast<unsigned char*>(args->v) + t * layer.v_head_dim * bytes);
      }
      const int64_t heads = layer.num_kv_heads;
      if (args->k_scale != nullptr) gather_scales(layer, layer.k_scales, args->slots[t], args->k_scale + t * heads);
      if (args->v_scale != nullptr) gather_scales(layer, layer.v_scales, args->slots[t], args->v_scale + t * heads);
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels

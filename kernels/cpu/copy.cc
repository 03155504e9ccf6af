// copy_pages and gather: stored bytes moved as they are.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {
namespace {

// Copies the first `tokens` slots of a page, all heads.
void copy_page(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims,
               const kvc_backend_page_copy& copy) {
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  unsigned char* data = static_cast<unsigned char*>(pool.data);
  const unsigned char* source = data + copy.source_page * pool.page_stride * bytes;
  unsigned char* target = data + copy.target_page * pool.page_stride * bytes;
  const bool compact = pool.slot_stride == dims;
  const int32_t runs = compact ? 1 : copy.num_tokens;
  const size_t run_bytes = static_cast<size_t>((compact ? copy.num_tokens : 1) * dims * bytes);
  for (int32_t h = 0; h < layer.num_kv_heads; ++h) {
    for (int32_t run = 0; run < runs; ++run) {
      const int64_t offset = (h * pool.head_stride + run * pool.slot_stride) * bytes;
      memcpy(target + offset, source + offset, run_bytes);
    }
  }
}

// Copies the rows of one slot to compact [num_kv_heads, dims].
void gather_slot(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int32_t dims, int64_t slot,
                 unsigned char* target) {
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  const unsigned char* source =
      static_cast<const unsigned char*>(pool.data) +
      (slot / layer.page_size * pool.page_stride + slot % layer.page_size * pool.slot_stride) * bytes;
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
kvc_status copy_pages(kvc_backend_device*, const kvc_backend_layer* layer, const kvc_backend_page_copy* copies,
                      int64_t num_copies, void*, kvc_error*) {
  for (int64_t i = 0; i < num_copies; ++i) {
    copy_page(*layer, layer->k, layer->head_dim, copies[i]);
    copy_page(*layer, layer->v, layer->v_head_dim, copies[i]);
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
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels

// copy_slots and gather: stored bytes and their scales moved as they are.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/common/scales.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stream.h"

namespace kvc::kernels {
namespace {

unsigned char* slot_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int64_t slot) {
  return static_cast<unsigned char*>(pool.data) +
         (slot / layer.page_size * pool.page_stride + slot % layer.page_size * pool.slot_stride) *
             type_bytes(type_of(layer.dtype));
}

// What one item moves of every slot: some heads of one of the two pools, and some bytes of their rows. No byte is in
// two parts, and a byte of a slot only ever goes to the same byte of another: each part takes the copies in their
// order, and none waits for another.
struct Part {
  const kvc_backend_pool* pool;
  const kvc_backend_scales* scales;  // of the tokens, where they have their own; null: another part moves them
  int64_t begin, end;                // bytes of a row
  int32_t head_begin, head_end;
};

// How a layer's slots are cut into parts: by pools, heads, and pieces of a row that are whole cache lines.
struct Cut {
  int32_t pools, heads, pieces;

  int64_t num_parts() const { return int64_t{pools} * heads * pieces; }
};

constexpr int64_t kPrefetchLines = 32;
constexpr int64_t kPartsPerThread = 4;  // so that a thread that comes late still finds some

// At least min(wanted, as many as there are) parts, wanted >= 1: heads first, which keep runs of slots whole.
Cut cut_of(const kvc_backend_layer& layer, int64_t wanted) {
  Cut cut = {layer.v_in_k != 0 ? 1 : 2, 1, 1};
  const int64_t dims = layer.v_in_k != 0 ? layer.head_dim : std::min(layer.head_dim, layer.v_head_dim);
  const int64_t lines = dims * type_bytes(type_of(layer.dtype)) / kLineBytes;
  const auto divided = [&](int64_t parts, int64_t most) {
    return static_cast<int32_t>(std::clamp((wanted + parts - 1) / parts, int64_t{1}, std::max(most, int64_t{1})));
  };
  cut.heads = divided(cut.num_parts(), layer.num_kv_heads);
  cut.pieces = divided(cut.num_parts(), lines);
  return cut;
}

Part part_of(const kvc_backend_layer& layer, const Cut& cut, int64_t index) {
  const int64_t piece = index % cut.pieces, heads = index / cut.pieces % cut.heads;
  const bool v = index / cut.pieces / cut.heads != 0;
  const int64_t row_bytes = int64_t{v ? layer.v_head_dim : layer.head_dim} * type_bytes(type_of(layer.dtype));
  const kvc_backend_scales& scales = v ? layer.v_scales : layer.k_scales;
  const Range bytes = share_of(row_bytes, cut.pieces == 1 ? row_bytes : kLineBytes, piece, cut.pieces);
  const Range range = share_of(layer.num_kv_heads, 1, heads, cut.heads);
  return {v ? &layer.v : &layer.k,
          piece == 0 && has_token_scales(&scales) ? &scales : nullptr,
          bytes.begin,
          bytes.end,
          static_cast<int32_t>(range.begin),
          static_cast<int32_t>(range.end)};
}

// Calls visit(offset, bytes) for each contiguous block of a part of `num_slots` slots of one page; offsets are bytes
// from the first slot's place.
template <class Visit>
void for_each_block(const kvc_backend_layer& layer, const Part& part, int32_t num_slots, Visit visit) {
  const int64_t bytes = type_bytes(type_of(layer.dtype)), row = part.end - part.begin;
  const int64_t head_bytes = part.pool->head_stride * bytes, slot_bytes = part.pool->slot_stride * bytes;
  const bool heads_adjoin = head_bytes == row, slots_adjoin = slot_bytes == row;
  const int64_t num_heads = part.head_end - part.head_begin;
  const int64_t heads = heads_adjoin ? 1 : num_heads, slots = slots_adjoin ? 1 : num_slots;
  const int64_t block = (heads_adjoin ? num_heads : 1) * (slots_adjoin ? num_slots : 1) * row;
  const int64_t first = part.head_begin * head_bytes + part.begin;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t s = 0; s < slots; ++s) visit(first + h * head_bytes + s * slot_bytes, block);
  }
}

// Asks for the first lines of what the next copy reads and writes: hardware prefetches stop at the end of a block.
void prefetch_block(const unsigned char* source, const unsigned char* target, int64_t bytes) {
  for (int64_t b = 0; b < bytes && b < kPrefetchLines * kLineBytes; b += kLineBytes) {
    __builtin_prefetch(source + b, 0);
    __builtin_prefetch(target + b, 1);
  }
}

// In one page source and target may overlap, the target below: blocks are in the order of their slots.
void copy_rows(const kvc_backend_layer& layer, const Part& part, const kvc_backend_slot_copy& copy,
               const kvc_backend_slot_copy& next, bool stream) {
  const unsigned char* source = slot_of(layer, *part.pool, copy.source_slot);
  unsigned char* target = slot_of(layer, *part.pool, copy.target_slot);
  const unsigned char* next_source = slot_of(layer, *part.pool, next.source_slot);
  const unsigned char* next_target = slot_of(layer, *part.pool, next.target_slot);
  for_each_block(layer, part, copy.num_slots, [&](int64_t offset, int64_t bytes) {
    if (stream && (target + bytes <= source || source + bytes <= target)) {
      stream_bytes(target + offset, source + offset, bytes, next_source + offset);
      return;
    }
    prefetch_block(next_source + offset, next_target + offset, bytes);
    memmove(target + offset, source + offset, static_cast<size_t>(bytes));
  });
}

float* scale_of_slot(const kvc_backend_layer& layer, const kvc_backend_scales& scales, int32_t head, int64_t slot) {
  return token_scale(&scales, slot / layer.page_size, head, slot % layer.page_size);
}

// The same for scales that tokens have of their own.
void copy_scales(const kvc_backend_layer& layer, const Part& part, const kvc_backend_slot_copy& copy) {
  for (int32_t h = part.head_begin; h < part.head_end; ++h) {
    for (int32_t i = 0; i < copy.num_slots; ++i) {
      *scale_of_slot(layer, *part.scales, h, copy.target_slot + i) =
          *scale_of_slot(layer, *part.scales, h, copy.source_slot + i);
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
    memcpy(target + int64_t{h} * dims * bytes, source + h * pool.head_stride * bytes,
           static_cast<size_t>(dims * bytes));
  }
}

int64_t token_bytes(const kvc_backend_layer& layer) {
  return static_cast<int64_t>(layer.num_kv_heads) * (layer.head_dim + layer.v_head_dim) *
         type_bytes(type_of(layer.dtype));
}

}  // namespace

// The caller holds the cache's lock: with the library's own threads or alone.
kvc_status copy_slots(kvc_backend_device* device, const kvc_backend_layer* layer, const kvc_backend_slot_copy* copies,
                      int64_t num_copies, void*, kvc_error*) {
  int64_t num_slots = 0;
  for (int64_t i = 0; i < num_copies; ++i) num_slots += copies[i].num_slots;
  const int64_t bytes = num_slots * token_bytes(*layer), threads = device->host->own_threads;
  const int64_t most = threads > 1 ? kPartsPerThread * threads : 1;
  const bool stream = bytes >= kStreamBytes;
  const Cut cut = cut_of(*layer, std::clamp(bytes / kInlineBytes, int64_t{1}, most));
  const auto move = [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const Part part = part_of(*layer, cut, p);
      for (int64_t i = 0; i < num_copies; ++i) {
        copy_rows(*layer, part, copies[i], copies[i + 1 < num_copies ? i + 1 : i], stream);
        if (part.scales != nullptr) copy_scales(*layer, part, copies[i]);
      }
    }
    if (stream) end_stream();
  };
  if (threads > 1) {
    parallel_chunks(device, cut.num_parts(), bytes / cut.num_parts(), move);
  } else {
    move(0, cut.num_parts());
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

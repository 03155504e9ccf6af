// copy_slots() and gather() move stored rows and their scales as bytes, whatever their dtype is.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stream.h"

namespace kvc::kernels {
namespace {

unsigned char* slot_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int64_t slot) {
  return static_cast<unsigned char*>(pool.data) + slot / layer.page_size * pool.page_stride_bytes +
         slot % layer.page_size * pool.slot_stride_bytes;
}

// What one work item moves of every slot: some heads of one pool, and some bytes of the rows of these heads. A copy
// moves each byte of a slot to the same byte of another slot, and no byte belongs to two parts. So each part can make
// all copies in their order, and need not wait for other parts.
struct Part {
  const kvc_backend_pool* pool;
  const kvc_backend_scales* scales;  // scales in the pages; null: there are none, or another part moves them
  int64_t begin, end;                // the bytes [begin, end) of each row
  int32_t head_begin, head_end;
};

// Says into how many parts the slots of a layer are cut: the number of pools, of head ranges in a pool, and of pieces
// of a row. A piece consists of whole cache lines.
struct Cut {
  int32_t pools, heads, pieces;

  int64_t num_parts() const { return int64_t{pools} * heads * pieces; }
};

constexpr int64_t kPrefetchLines = 32;  // the largest number of lines that are prefetched for a block
constexpr int64_t kPartsPerThread = 4;  // more than 1, so that a thread that begins after the others still finds work

// Cuts a layer into at least `wanted` parts, or into as many as possible. wanted: 1 or more. Heads are divided before
// rows, because neighbouring slots of a head can then be copied as one block.
Cut cut_of(const kvc_backend_layer& layer, int64_t wanted) {
  Cut cut = {layer.row_kind == KVC_BACKEND_ROW_LATENT ? 1 : 2, 1, 1};
  const int64_t row_bytes =
      layer.row_kind == KVC_BACKEND_ROW_LATENT ? layer.k.row_bytes : std::min(layer.k.row_bytes, layer.v.row_bytes);
  const int64_t lines = row_bytes / kLineBytes;
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
  const int64_t row_bytes = v ? layer.v.row_bytes : layer.k.row_bytes;
  const kvc_backend_scales& scales = v ? layer.v_scales : layer.k_scales;
  const Range bytes = share_of(row_bytes, cut.pieces == 1 ? row_bytes : kLineBytes, piece, cut.pieces);
  const Range range = share_of(layer.num_kv_heads, 1, heads, cut.heads);
  return {v ? &layer.v : &layer.k,
          piece == 0 && scales.row_bytes > 0 ? &scales : nullptr,
          bytes.begin,
          bytes.end,
          static_cast<int32_t>(range.begin),
          static_cast<int32_t>(range.end)};
}

// Calls visit(offset, bytes) for each contiguous block that a part has in `num_slots` slots of one page. offset: bytes
// from the beginning of the first slot.
template <class Visit>
void for_each_block(const Part& part, int32_t num_slots, Visit visit) {
  const int64_t row = part.end - part.begin;
  const int64_t head_bytes = part.pool->head_stride_bytes, slot_bytes = part.pool->slot_stride_bytes;
  const bool heads_adjoin = head_bytes == row, slots_adjoin = slot_bytes == row;
  const int64_t num_heads = part.head_end - part.head_begin;
  const int64_t heads = heads_adjoin ? 1 : num_heads, slots = slots_adjoin ? 1 : num_slots;
  const int64_t block = (heads_adjoin ? num_heads : 1) * (slots_adjoin ? num_slots : 1) * row;
  const int64_t first = part.head_begin * head_bytes + part.begin;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t s = 0; s < slots; ++s) visit(first + h * head_bytes + s * slot_bytes, block);
  }
}

// Prefetches the first lines that the next copy reads and writes. The hardware prefetcher stops at the end of each
// block.
void prefetch_block(const unsigned char* source, const unsigned char* target, int64_t bytes) {
  for (int64_t b = 0; b < bytes && b < kPrefetchLines * kLineBytes; b += kLineBytes) {
    __builtin_prefetch(source + b, 0);
    __builtin_prefetch(target + b, 1);
  }
}

// Returns the address of the scales of one row.
unsigned char* scales_of_row(const kvc_backend_layer& layer, const kvc_backend_scales& scales, int32_t head,
                             int64_t slot) {
  return static_cast<unsigned char*>(scales.data) + slot / layer.page_size * scales.page_stride_bytes +
         head * scales.head_stride_bytes + slot % layer.page_size * scales.slot_stride_bytes;
}

// Sets the target rows and scales of a copy to zero bytes. The copy has no source.
void clear_rows(const kvc_backend_layer& layer, const Part& part, const kvc_backend_slot_copy& copy) {
  unsigned char* target = slot_of(layer, *part.pool, copy.target_slot);
  for_each_block(part, copy.num_slots,
                 [&](int64_t offset, int64_t bytes) { memset(target + offset, 0, static_cast<size_t>(bytes)); });
  if (part.scales == nullptr) return;
  for (int32_t h = part.head_begin; h < part.head_end; ++h) {
    for (int32_t i = 0; i < copy.num_slots; ++i) {
      memset(scales_of_row(layer, *part.scales, h, copy.target_slot + i), 0,
             static_cast<size_t>(part.scales->row_bytes));
    }
  }
}

// Copies the rows of a part. Within one page, source and target may overlap if the target has lower slots. So blocks
// are moved in ascending order of their slots. next: the copy after this one, which is prefetched.
void copy_rows(const kvc_backend_layer& layer, const Part& part, const kvc_backend_slot_copy& copy,
               const kvc_backend_slot_copy& next, bool stream) {
  const unsigned char* source = slot_of(layer, *part.pool, copy.source_slot);
  unsigned char* target = slot_of(layer, *part.pool, copy.target_slot);
  const unsigned char* next_source = slot_of(layer, *part.pool, next.source_slot);
  const unsigned char* next_target = slot_of(layer, *part.pool, next.target_slot);
  for_each_block(part, copy.num_slots, [&](int64_t offset, int64_t bytes) {
    if (stream && (target + bytes <= source || source + bytes <= target)) {
      stream_bytes(target + offset, source + offset, bytes, next_source + offset);
      return;
    }
    prefetch_block(next_source + offset, next_target + offset, bytes);
    memmove(target + offset, source + offset, static_cast<size_t>(bytes));
  });
}

// Copies the scales of the part's rows. If the scales of a head are adjacent, they are one block.
void copy_scales(const kvc_backend_layer& layer, const Part& part, const kvc_backend_slot_copy& copy) {
  const kvc_backend_scales& scales = *part.scales;
  const int32_t block = scales.slot_stride_bytes == scales.row_bytes ? copy.num_slots : 1;
  for (int32_t h = part.head_begin; h < part.head_end; ++h) {
    for (int32_t i = 0; i < copy.num_slots; i += block) {
      memmove(scales_of_row(layer, scales, h, copy.target_slot + i),
              scales_of_row(layer, scales, h, copy.source_slot + i), static_cast<size_t>(block * scales.row_bytes));
    }
  }
}

// Copies bytes between a pool and a dense array.
void move_row(unsigned char* stored, unsigned char* dense, int64_t bytes, bool store) {
  memcpy(store ? stored : dense, store ? dense : stored, static_cast<size_t>(bytes));
}

// Copies the scales of one slot to or from a dense array [num_kv_heads, row_bytes].
void move_scales(const kvc_backend_layer& layer, const kvc_backend_scales& scales, int64_t slot, unsigned char* dense,
                 bool store) {
  for (int32_t h = 0; h < layer.num_kv_heads; ++h, dense += scales.row_bytes) {
    move_row(scales_of_row(layer, scales, h, slot), dense, scales.row_bytes, store);
  }
}

// Copies the rows of one slot to or from a dense array [num_kv_heads, row_bytes].
void move_slot(const kvc_backend_layer& layer, const kvc_backend_pool& pool, int64_t slot, unsigned char* dense,
               bool store) {
  unsigned char* stored = slot_of(layer, pool, slot);
  for (int32_t h = 0; h < layer.num_kv_heads; ++h, dense += pool.row_bytes) {
    move_row(stored + h * pool.head_stride_bytes, dense, pool.row_bytes, store);
  }
}

int64_t token_bytes(const kvc_backend_layer& layer) {
  return layer.num_kv_heads * (layer.k.row_bytes + layer.v.row_bytes);
}

}  // namespace

// The caller holds the cache's lock, so no code of the host may run here. The copies run on the library's own threads,
// or on the calling thread alone.
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
        if (copies[i].source_slot < 0) {
          clear_rows(*layer, part, copies[i]);
          continue;
        }
        const bool more = i + 1 < num_copies && copies[i + 1].source_slot >= 0;
        copy_rows(*layer, part, copies[i], copies[more ? i + 1 : i], stream);
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
  const bool store = args->store != 0;
  const auto row_of = [&](void* rows, int64_t token, int64_t row_bytes) {
    return static_cast<unsigned char*>(rows) + token * layer.num_kv_heads * row_bytes;
  };
  parallel_chunks(device, args->num_tokens, token_bytes(layer), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t slot = args->slots[t];
      if (slot < 0) continue;
      if (args->k != nullptr) move_slot(layer, layer.k, slot, row_of(args->k, t, layer.k.row_bytes), store);
      if (args->v != nullptr) move_slot(layer, layer.v, slot, row_of(args->v, t, layer.v.row_bytes), store);
      if (args->k_scale != nullptr) {
        move_scales(layer, layer.k_scales, slot, row_of(args->k_scale, t, layer.k_scales.row_bytes), store);
      }
      if (args->v_scale != nullptr) {
        move_scales(layer, layer.v_scales, slot, row_of(args->v_scale, t, layer.v_scales.row_bytes), store);
      }
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels

// copy_slots and gather copy stored rows and their scales as bytes, so the dtype does not matter. They move words of
// 16, 4 or 1 bytes: the longest word that divides all addresses, strides and row sizes.
//
// Roofline: memory bandwidth. Each byte is read once and written once.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/copy/plan.h"
#include "kernels/cuda/copy/words.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int32_t kSlotsOfThread = 16;  // the largest number of slots that a thread copies if no copies conflict
constexpr int kAtOnce = 4;              // the number of loads of a thread before its first store
constexpr int64_t kScaleWord = 4;       // bytes: the scales of a row are a multiple of this
constexpr int64_t kMostBlocks = 65535;  // the largest size of a grid in the dimensions y and z
static_assert(kSlotsOfThread % kAtOnce == 0);

struct CopyCall {
  kvc_backend_layer layer;
  const kvc_backend_slot_copy* copies;  // in device memory
  const int64_t* chains;  // [num_chains + 1]: the begin of each chain of copies (copy/plan.h); null: no copies conflict
  int64_t num_chains;
  int64_t k_words, v_words, scales;  // counts for one slot with all heads: words of K, words of V, and scale words (of
                                     // kScaleWord bytes) of K or of V
};

// One word at the same place in every slot of a pool: a word of a head's row, or 4 bytes of the scales of that row.
struct Column {
  unsigned char* data;
  int64_t page_stride, slot_stride;  // bytes
  bool is_scale;
};

template <class Word>
__device__ __forceinline__ Column pool_column(const kvc_backend_pool& pool, int64_t index) {
  const auto row_words = static_cast<uint32_t>(pool.row_bytes / static_cast<int64_t>(sizeof(Word))),
             head = static_cast<uint32_t>(index) / row_words;  // a slot has fewer than 2^31 words
  return {static_cast<unsigned char*>(pool.data) + head * pool.head_stride_bytes +
              (index - head * row_words) * static_cast<int64_t>(sizeof(Word)),
          pool.page_stride_bytes, pool.slot_stride_bytes, false};
}

__device__ __forceinline__ Column scale_column(const kvc_backend_scales& scales, int64_t index) {
  const int64_t row_words = scales.row_bytes / kScaleWord, head = index / row_words;
  return {static_cast<unsigned char*>(scales.data) + head * scales.head_stride_bytes + index % row_words * kScaleWord,
          scales.page_stride_bytes, scales.slot_stride_bytes, true};
}

// Returns column `index` of a slot. The order is: words of K, words of V, scales of K, scales of V.
template <class Word>
__device__ Column column_of(const CopyCall& call, int64_t index) {
  const kvc_backend_layer& layer = call.layer;
  if (index < call.k_words) return pool_column<Word>(layer.k, index);
  index -= call.k_words;
  if (index < call.v_words) return pool_column<Word>(layer.v, index);
  index -= call.v_words;
  return index < call.scales ? scale_column(layer.k_scales, index) : scale_column(layer.v_scales, index - call.scales);
}

__device__ __forceinline__ int64_t count_columns(const CopyCall& call) {
  return call.k_words + call.v_words + (call.layer.row_kind == KVC_BACKEND_ROW_LATENT ? call.scales : 2 * call.scales);
}

__device__ __forceinline__ unsigned char* in_slot(const Column& column, int64_t slot, int32_t page_size) {
  return column.data + slot_bytes(slot, page_size, column.page_stride, column.slot_stride);
}

// Iterates over the slots of copies [first, end). If the target of a copy is above its source, the slots of the copy
// are moved from the last to the first. So each slot is read before it is written, even if source and target overlap.
struct Moves {
  const kvc_backend_slot_copy* copies;
  int64_t first, end;
  int32_t moved;  // the number of slots of copies[first] that `next` has given

  // Gives the source and the target of the next slot. *source is -1 if the target is cleared. Returns false after the
  // last slot.
  __device__ __forceinline__ bool next(int64_t* source, int64_t* target) {
    while (first < end && moved == copies[first].num_slots) {
      ++first;
      moved = 0;
    }
    if (first == end) return false;
    const kvc_backend_slot_copy copy = copies[first];
    const int32_t slot = copy.target_slot > copy.source_slot ? copy.num_slots - 1 - moved : moved;
    ++moved;
    *source = copy.source_slot < 0 ? -1 : copy.source_slot + slot;
    *target = copy.target_slot + slot;
    return true;
  }
};

// Moves a column of up to kAtOnce chains, from chain `first` on, one slot of each chain at a time. Different chains
// have no slot in common, so the loads of all chains can precede the stores.
template <class Word>
__device__ __forceinline__ void move_short_chains(const Column& column, const CopyCall& call, int64_t first) {
  int64_t next[kAtOnce + 1];  // for each chain: the index of the copy that is being moved
  kvc_backend_slot_copy copies[kAtOnce] = {};
  int32_t left[kAtOnce],
      moved[kAtOnce];  // left: the number of copies of the chain that are not done; moved: the number of slots of the
                       // current copy that are done
  int32_t all = 0;
#pragma unroll
  for (int i = 0; i <= kAtOnce; ++i) next[i] = call.chains[first + i < call.num_chains ? first + i : call.num_chains];
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    left[i] = static_cast<int32_t>(next[i + 1] - next[i]);
    moved[i] = 0;
    all |= left[i];
    if (left[i] > 0) copies[i] = call.copies[next[i]];
  }
  while (all > 0) {
    Word words[kAtOnce] = {};
    unsigned char* targets[kAtOnce] = {};
    all = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (left[i] == 0 || moved[i] >= copies[i].num_slots) continue;
      const kvc_backend_slot_copy& copy = copies[i];
      const int32_t slot = copy.target_slot > copy.source_slot ? copy.num_slots - 1 - moved[i] : moved[i];
      targets[i] = in_slot(column, copy.target_slot + slot, call.layer.page_size);
      if (copy.source_slot < 0) continue;
      words[i] = *reinterpret_cast<const Word*>(in_slot(column, copy.source_slot + slot, call.layer.page_size));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (left[i] == 0 || ++moved[i] < copies[i].num_slots) continue;
      moved[i] = 0;
      if (--left[i] > 0) copies[i] = call.copies[++next[i]];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (targets[i] != nullptr) *reinterpret_cast<Word*>(targets[i]) = words[i];
      all |= left[i];
    }
  }
}

// Moves a column of all slots. The result is the same as if one slot were moved after another. But slots are moved in
// groups of up to kAtOnce: all slots of a group are loaded before the first of them is stored. A group ends before a
// slot whose source is a target of the group.
template <class Word>
__device__ __forceinline__ void move_in_order(const Column& column, Moves moves, int32_t page_size) {
  int64_t source = 0, target = 0;
  bool left = moves.next(&source, &target);
  while (left) {
    Word words[kAtOnce] = {};
    int64_t targets[kAtOnce] = {};
    int count = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      bool waits = !left;
#pragma unroll
      for (int j = 0; j < i; ++j) waits = waits || targets[j] == source;
      if (waits) break;
      if (source >= 0) words[i] = *reinterpret_cast<const Word*>(in_slot(column, source, page_size));
      targets[i] = target;
      count = i + 1;
      left = moves.next(&source, &target);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= count) break;
      *reinterpret_cast<Word*>(in_slot(column, targets[i], page_size)) = words[i];
    }
  }
}

template <class Word, bool kShort>
__device__ __forceinline__ void move_chains(const Column& column, const CopyCall& call, int64_t chain) {
  if constexpr (kShort) {
    move_short_chains<Word>(column, call, chain);
  } else {
    move_in_order<Word>(column, {call.copies, call.chains[chain], call.chains[chain + 1], 0}, call.layer.page_size);
  }
}

// Runs copies that conflict. A thread moves its column through all copies of a chain (copy/plan.h) in order, so no
// thread waits for another. blockIdx.x selects columns. blockIdx.y selects the first chain, and gridDim.y is the step
// to the next chain. With kShort, a thread moves kAtOnce chains at a time, so blockIdx.y and gridDim.y count groups of
// kAtOnce chains.
template <class Word, bool kShort>
__global__ void __launch_bounds__(kThreads) copy_in_order_kernel(const __grid_constant__ CopyCall call) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= count_columns(call)) return;
  const Column column = column_of<Word>(call, index);
  constexpr int64_t kChains = kShort ? kAtOnce : 1;
  for (int64_t chain = blockIdx.y * kChains; chain < call.num_chains; chain += gridDim.y * kChains) {
    if (column.is_scale) {
      move_chains<float, kShort>(column, call, chain);
    } else {
      move_chains<Word, kShort>(column, call, chain);
    }
  }
}

// Moves a column of up to kSlotsOfThread slots of a copy, from its slot `first` on.
template <class Word>
__device__ __forceinline__ void move_slots(const Column& column, const kvc_backend_slot_copy& copy, int32_t first,
                                           int32_t page_size) {
  const int32_t end = copy.num_slots - first < kSlotsOfThread ? copy.num_slots : first + kSlotsOfThread;
  for (int32_t slot = first; slot < end; slot += kAtOnce) {
    Word words[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (slot + i >= end || copy.source_slot < 0) break;
      words[i] = *reinterpret_cast<const Word*>(in_slot(column, copy.source_slot + slot + i, page_size));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (slot + i >= end) break;
      *reinterpret_cast<Word*>(in_slot(column, copy.target_slot + slot + i, page_size)) = words[i];
    }
  }
}

// Runs copies of which no two conflict, and whose source and target do not overlap. blockIdx.x selects columns,
// blockIdx.y slots, and blockIdx.z the copy.
template <class Word>
__global__ void __launch_bounds__(kThreads) copy_apart_kernel(const __grid_constant__ CopyCall call) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const kvc_backend_slot_copy copy = call.copies[blockIdx.z];
  const int32_t first = static_cast<int32_t>(blockIdx.y) * kSlotsOfThread;
  if (index >= count_columns(call) || first >= copy.num_slots) return;
  const Column column = column_of<Word>(call, index);
  if (column.is_scale) {
    move_slots<float>(column, copy, first, call.layer.page_size);
  } else {
    move_slots<Word>(column, copy, first, call.layer.page_size);
  }
}

struct GatherCall {
  kvc_backend_gather args;  // args.slots is in device memory
  kvc_backend_layer layer;
  int64_t k_words, v_words, scales;  // as in CopyCall; 0 for arrays that the caller does not need
};

// Where one word of a slot, or of its scales, lies: in the pool, and in the caller's dense array.
struct GatherColumn {
  Column stored;
  unsigned char* dense;  // the address for token 0; null: the caller does not need this array
  int64_t token_stride;  // bytes
};

template <class Word>
__device__ __forceinline__ GatherColumn gather_column(const GatherCall& call, int64_t index) {
  constexpr int64_t kBytes = sizeof(Word);
  const kvc_backend_layer& layer = call.layer;
  const bool of_rows = index < call.k_words + call.v_words;
  if (!of_rows) index -= call.k_words + call.v_words;
  const int64_t of_k_count = of_rows ? call.k_words : call.scales;
  const bool of_k = index < of_k_count;
  if (!of_k) index -= of_k_count;
  void* const dense = of_rows ? (of_k ? call.args.k : call.args.v) : of_k ? call.args.k_scale : call.args.v_scale;
  const int64_t bytes = of_rows ? kBytes : kScaleWord,
                each = of_rows ? (of_k ? call.k_words : call.v_words) : call.scales;
  GatherColumn column = {{}, static_cast<unsigned char*>(dense), each * bytes};
  if (dense == nullptr) return column;
  column.dense += index * bytes;
  column.stored = of_rows ? pool_column<Word>(of_k ? layer.k : layer.v, index)
                          : scale_column(of_k ? layer.k_scales : layer.v_scales, index);
  return column;
}

// Copies a column of up to kAtOnce tokens from the pool to the dense array. With args.store it copies in the other
// direction.
template <class Word>
__device__ __forceinline__ void move_tokens(const GatherCall& call, const GatherColumn& column, int64_t first) {
  Word words[kAtOnce] = {};
  unsigned char* stored[kAtOnce] = {};
  unsigned char* const dense = column.dense + first * column.token_stride;
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int64_t slot = first + i < call.args.num_tokens ? call.args.slots[first + i] : -1;
    stored[i] = slot < 0 ? nullptr : in_slot(column.stored, slot, call.layer.page_size);
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const unsigned char* const from = call.args.store != 0 ? dense + i * column.token_stride : stored[i];
    if (stored[i] != nullptr) words[i] = *reinterpret_cast<const Word*>(from);
  }
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    unsigned char* const to = call.args.store != 0 ? stored[i] : dense + i * column.token_stride;
    if (stored[i] != nullptr) *reinterpret_cast<Word*>(to) = words[i];
  }
}

// A scale at an address of any alignment, because a caller may place the arrays of a page without padding between them.
struct LooseScale {
  unsigned char bytes[kScaleWord];
};

// A thread copies the same word, or the same scale word, of kAtOnce tokens.
template <class Word>
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherCall call) {
  const int64_t token_size = call.k_words + call.v_words + 2 * call.scales;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t group =
      thread <= INT32_MAX ? static_cast<uint32_t>(thread) / static_cast<uint32_t>(token_size) : thread / token_size;
  if (group * kAtOnce >= call.args.num_tokens) return;
  const GatherColumn column = gather_column<Word>(call, thread - group * token_size);
  if (column.dense == nullptr) return;
  if (column.stored.is_scale && reinterpret_cast<uint64_t>(column.dense) % sizeof(float) != 0) {
    move_tokens<LooseScale>(call, column, group * kAtOnce);
  } else if (column.stored.is_scale) {
    move_tokens<float>(call, column, group * kAtOnce);
  } else {
    move_tokens<Word>(call, column, group * kAtOnce);
  }
}

// All addresses, strides and row sizes of the layer's pools, in bytes, combined by bitwise or.
uint64_t places_of(const kvc_backend_layer& layer, bool with_v) {
  return places_of_pool(layer.k) | (with_v ? places_of_pool(layer.v) : 0);
}

template <class Word>
int64_t words_of_slot(const kvc_backend_layer& layer, const kvc_backend_pool& pool) {
  return layer.num_kv_heads * (pool.row_bytes / static_cast<int64_t>(sizeof(Word)));
}

int64_t scales_of_slot(const kvc_backend_layer& layer) {
  return layer.num_kv_heads * (layer.k_scales.row_bytes / kScaleWord);
}

}  // namespace

kvc_status copy_slots(kvc_backend_device* opened, const kvc_backend_layer* layer, const kvc_backend_slot_copy* copies,
                      int64_t num_copies, void* stream, kvc_error* error) {
  if (num_copies == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const std::lock_guard<std::mutex> lock(device.upload.mutex());
  void* const memory = device.upload.scratch<unsigned char>(bytes_to_cut(num_copies));
  if (memory == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for copies of slots");
  int32_t most_slots = 0;
  for (int64_t i = 0; i < num_copies; ++i) most_slots = std::max(most_slots, copies[i].num_slots);
  const int64_t chunks = (most_slots + kSlotsOfThread - 1) / kSlotsOfThread;
  const bool fits = chunks > 0 && chunks <= kMostBlocks && num_copies <= kMostBlocks;
  const CopyCut cut = cut_copies(copies, num_copies, fits, memory);
  Piece pieces[] = {piece_of(cut.copies, num_copies), piece_of(cut.begins, cut.chains + 1)};
  return with_locked_upload(&device.upload, pieces, 2, stream, error, [&] {
    return with_words(places_of(*layer, layer->row_kind != KVC_BACKEND_ROW_LATENT), [&]<class Word>(Word) {
      const CopyCall call = {*layer,
                             on_device<const kvc_backend_slot_copy>(pieces[0]),
                             on_device<const int64_t>(pieces[1]),
                             cut.chains,
                             words_of_slot<Word>(*layer, layer->k),
                             layer->row_kind == KVC_BACKEND_ROW_LATENT ? 0 : words_of_slot<Word>(*layer, layer->v),
                             scales_of_slot(*layer)};
      const int64_t columns = call.k_words + call.v_words + 2 * call.scales;
      if (cut.begins != nullptr) {
        const bool is_short = num_copies < kAtOnce * cut.chains;
        const auto chains =
            static_cast<unsigned>(std::min(is_short ? (cut.chains + kAtOnce - 1) / kAtOnce : cut.chains, kMostBlocks));
        return launch("copies of slots", stream, {blocks_for(columns, kThreads), chains, 1}, kThreads, 0, error,
                      is_short ? copy_in_order_kernel<Word, true> : copy_in_order_kernel<Word, false>, call);
      }
      return launch("copies of slots", stream,
                    {blocks_for(columns, kThreads), static_cast<unsigned>(chunks), static_cast<unsigned>(num_copies)},
                    kThreads, 0, error, copy_apart_kernel<Word>, call);
    });
  });
}

kvc_status gather(kvc_backend_device* opened, const kvc_backend_gather* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const kvc_backend_layer& layer = *args->layer;
  const auto run = [&](const int64_t* slots) {
    const uint64_t places = places_of(layer, args->v != nullptr) | reinterpret_cast<uintptr_t>(args->k) |
                            reinterpret_cast<uintptr_t>(args->v);
    return with_words(places, [&]<class Word>(Word) {
      GatherCall call = {*args, layer, args->k != nullptr ? words_of_slot<Word>(layer, layer.k) : 0,
                         args->v != nullptr ? words_of_slot<Word>(layer, layer.v) : 0,
                         args->k_scale != nullptr || args->v_scale != nullptr ? scales_of_slot(layer) : 0};
      call.args.slots = slots;
      const int64_t threads =
          (call.k_words + call.v_words + 2 * call.scales) * ((args->num_tokens + kAtOnce - 1) / kAtOnce);
      return launch("gather", stream, {blocks_for(threads, kThreads), 1, 1}, kThreads, 0, error, gather_kernel<Word>,
                    call);
    });
  };
  if (args->step != nullptr || args->slots_on_device != 0) return run(args->slots);
  Piece slots = piece_of(args->slots, args->num_tokens);
  return with_upload(&device.upload, &slots, 1, stream, error, [&] { return run(on_device<const int64_t>(slots)); });
}

}  // namespace kvc::kernels::cuda

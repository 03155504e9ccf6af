// append: stores the rows of K and V of a step in their slots. A warp rotates, rounds or quantises one row. Rows that
// are stored unchanged are copied by another kernel, in which a thread copies words.
//
// Roofline: memory bandwidth. The new rows are read once and written once. Rows that become int8 are read twice, the
// second time from the cache. Rows that become uint4 are rotated in shared memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/block_row.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/cuda/copy/nibbles.cuh"
#include "kernels/cuda/copy/words.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/faults.cuh"
#include "kernels/cuda/plan/indexes.cuh"
#include "kernels/cuda/rotate.cuh"
#include "kernels/cuda/step/step.h"
#include "kernels/cuda/warp.cuh"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;
// For rows that are copied. A thread copies one token, unless that takes more than kFewBlocks thread blocks for each
// multiprocessor. Then a thread copies kTokensOfThread tokens.
constexpr int kTokensOfThread = 4, kFewBlocks = 16;

// Passed to the kernels by value. args.slots is in device memory.
struct AppendCall {
  kvc_backend_append args;
  kvc_backend_layer layer;
  const int64_t*
      live_tokens;  // the number of tokens of the current step, in device memory; null: it is args.num_tokens
  FaultSink sink;
};

// The row of K or V of one token and head, which is to be stored.
struct Row {
  const AppendCall* call;
  int64_t token;
  int32_t head;
  int32_t batch_row;  // the token's row of the batch, if such rows have strides and scales; else 0
  bool of_k;
  const float* cos_sin;  // null: not rotated
};

// The index of the element where the batch row begins in k, or in v.
__device__ __forceinline__ int64_t row_element(const Row& row, bool of_k) {
  const kvc_backend_append& args = row.call->args;
  return row.batch_row * (of_k ? args.k_row_stride : args.v_row_stride);
}

__device__ __forceinline__ float tensor_element(const Row& row, bool of_k, int32_t d) {
  const kvc_backend_tensor& tensor = of_k ? row.call->args.k : row.call->args.v;
  return load_element(type_of(tensor.dtype), tensor.data,
                      row_element(row, of_k) + row.token * tensor.token_stride + row.head * tensor.head_stride + d);
}

// Dim d of the row as the caller gave it. A latent row may come in two tensors: v has its first v_head_dim dims, and k
// has the rest.
__device__ __forceinline__ float given(const Row& row, int32_t d) {
  const AppendCall& call = *row.call;
  if (!row.of_k) return tensor_element(row, false, d);
  if (call.layer.row_kind == KVC_BACKEND_ROW_LATENT && call.args.v.data != nullptr) {
    if (d < call.layer.v_head_dim) return tensor_element(row, false, d);
    d -= call.layer.v_head_dim;
  }
  return tensor_element(row, true, d);
}

__device__ __forceinline__ float rotated(const Row& row, int32_t d) {
  const kvc_backend_layer& layer = row.call->layer;
  if (row.cos_sin == nullptr || !is_rotated(layer, d)) return given(row, d);
  const Pair pair = pair_of(layer, d);
  return rotated_dim(pair, given(row, pair.first), given(row, pair.second), row.cos_sin[pair.index],
                     row.cos_sin[layer.rope_dim / 2 + pair.index]);
}

// Copies a row that already has the stored type, and its scales in the page.
__device__ __forceinline__ void copy_row(const Row& row, const kvc_backend_scales& scales, int64_t page, int64_t slot,
                                         unsigned char* target, int64_t row_bytes, int32_t lane) {
  const kvc_backend_append& args = row.call->args;
  const kvc_backend_tensor &from = row.of_k ? args.k : args.v, &from_scales = row.of_k ? args.k_scale : args.v_scale;
  const int64_t bytes = element_bytes(type_of(from.dtype));
  const unsigned char* source =
      static_cast<const unsigned char*>(from.data) +
      (row_element(row, row.of_k) + row.token * from.token_stride + row.head * from.head_stride) * bytes;
  for (int64_t i = lane; i < row_bytes; i += kWarpSize) target[i] = source[i];
  if (!has_token_scales(&scales)) return;
  const unsigned char* const from_row =
      static_cast<const unsigned char*>(from_scales.data) +
      (row.token * from_scales.token_stride + row.head * from_scales.head_stride) * (from_scales.dtype.bits / 8);
  auto* const to = reinterpret_cast<unsigned char*>(token_scale(&scales, page, row.head, slot));
  for (int64_t i = lane; i < scales.row_bytes; i += kWarpSize) to[i] = from_row[i];
}

// Returns the float32 bits of the largest magnitude of the dims [begin, end) of a row. All lanes of the warp call it
// for the same row.
__device__ __forceinline__ uint32_t largest_of_row(const Row& row, int32_t begin, int32_t end, int32_t lane) {
  uint32_t largest = 0;
  for (int32_t d = begin + lane; d < end; d += kWarpSize) {
    const uint32_t magnitude = float_bits(rotated(row, d)) & 0x7fffffffu;
    largest = magnitude > largest ? magnitude : largest;
  }
  return warp_max(largest);
}

// Stores a block row (block_row.h). page_scales: as in scales_of_row.
__device__ __forceinline__ void store_block_row(const Row& row, int32_t dims, unsigned char* target, void* page_scales,
                                                int64_t page_scale_bytes, int32_t lane) {
  const BlockRow shape = block_row(row.call->layer);
  auto* const scales = const_cast<unsigned char*>(scales_of_row(shape, target, page_scales));
  const int32_t block_dims = dims < shape.block_dims ? dims : shape.block_dims, each = 1 << shape.scale_shift;
  if (shape.scales_at < 0) {  // the bytes after the last scale are zeros
    for (int64_t i = lane; i < page_scale_bytes; i += kWarpSize) scales[i] = 0;
    __syncwarp();
  }
  for (int32_t begin = 0; begin < block_dims; begin += each) {
    const int32_t end = begin + each < block_dims ? begin + each : block_dims;
    const float scale = scale_of_magnitude(shape, largest_of_row(row, begin, end, lane));
    const auto quotient = [&](int32_t d) { return scale == scale ? rotated(row, d) / scale : 0.0f; };
    if (lane == 0) set_scale_of_dim(shape, scales, begin, scale);
    if (shape.element == Type::kE4m3) {
      for (int32_t d = begin + lane; d < end; d += kWarpSize) store_element(Type::kE4m3, target, d, quotient(d));
      continue;
    }
    for (int32_t d = begin + 2 * lane; d < end; d += 2 * kWarpSize) {
      E2m1 even, odd;
      narrow(quotient(d), &even);
      narrow(quotient(d + 1), &odd);
      target[d / 2] = static_cast<unsigned char>(even.bits | odd.bits << 4);
    }
  }
  for (int32_t d = block_dims + lane; d < dims; d += kWarpSize) {
    store_element(shape.rest, target + shape.rest_at, d - block_dims, rotated(row, d));
  }
}

// The dims of the longer one of K's row and V's row.
KVC_HOST_DEVICE int32_t longest_row(const kvc_backend_layer& layer) {
  return layer.head_dim > layer.v_head_dim ? layer.head_dim : layer.v_head_dim;
}

// kPacked: the layer stores rows of 4 bits.
template <bool kPacked>
__device__ __forceinline__ void store_row(const Row& row, const kvc_backend_pool& pool,
                                          const kvc_backend_scales& scales, int32_t dims, int64_t stored,
                                          int32_t lane) {
  const kvc_backend_layer& layer = row.call->layer;
  const kvc_backend_append& args = row.call->args;
  const Type type = stored_type(layer);
  const int64_t page = stored / layer.page_size, slot = stored % layer.page_size;
  unsigned char* const target = static_cast<unsigned char*>(pool.data) + page * pool.page_stride_bytes +
                                row.head * pool.head_stride_bytes + slot * pool.slot_stride_bytes;
  const bool parts = layer.row_kind == KVC_BACKEND_ROW_LATENT && args.v.data != nullptr;
  if (!parts && row.cos_sin == nullptr && type_of_rows(layer, (row.of_k ? args.k : args.v).dtype) == type) {
    copy_row(row, scales, page, slot, target, pool.row_bytes, lane);
    return;
  }
  if constexpr (kPacked) {
    const auto element = [&](int32_t d) { return rotated(row, d); };
    if (type == Type::kE2m1) {
      store_blocks_by_warp(element, dims, head_scale(&scales, row.head), target, lane);
      return;
    }
    float* const spread = reinterpret_cast<float*>(shared_bytes()) + threadIdx.x / kWarpSize * longest_row(layer);
    const float scale = store_nibbles_by_warp(element, dims, rotation_block(layer, dims), spread, target, lane);
    if (lane == 0 && has_token_scales(&scales)) *token_scale(&scales, page, row.head, slot) = scale;
    return;
  }
  if (type == Type::kBlockRow) {
    store_block_row(row, dims, target, token_scale(&scales, page, row.head, slot), scales.row_bytes, lane);
    return;
  }
  if (!is_quantised(type)) {
    for (int32_t d = lane; d < dims; d += kWarpSize) store_element(type, target, d, rotated(row, d));
    return;
  }
  const kvc_backend_row_scales& of_rows = row.of_k ? args.k_row_scales : args.v_row_scales;
  const float scale = type == Type::kI8 ? row_scale(largest_of_row(row, 0, dims, lane))
                                        : head_scale(&scales, row.head) * row_factor(&of_rows, row.batch_row, row.head);
  const bool is_number = type != Type::kI8 || scale == scale;
  for (int32_t d = lane; d < dims; d += kWarpSize) {
    const float x = rotated(row, d);  // NaN is not divided, because a division on a GPU loses its sign
    store_element(type, target, d, !is_number ? 0.0f : x == x ? x / scale : x);
  }
  if (lane == 0 && has_token_scales(&scales)) *token_scale(&scales, page, row.head, slot) = scale;
}

// Returns the slot of a token, or -1 for a token that is skipped. Slots that only the device reads are checked here: a
// token whose slot or position is out of range is skipped. says: whether this thread reports the bad value.
__device__ __forceinline__ int64_t slot_of(const AppendCall& call, int64_t token, bool says) {
  const kvc_backend_append& args = call.args;
  if (args.slots != nullptr) return args.slots[token];
  const int64_t slot = index_at(args.device_slots, token);
  if (slot < 0) return -1;
  const ValueCheck check = {says ? call.sink : FaultSink(), KVC_BACKEND_CALL_APPEND_SLOTS};
  const int64_t slots = call.layer.num_pages * call.layer.page_size;
  if (!check.within(KVC_BACKEND_ARRAY_SLOT_MAPPING, token, slot, 0, slots - 1)) return -1;
  if (args.num_positions > 0 && !check.within(KVC_BACKEND_ARRAY_POSITIONS, token,
                                              index_at(args.device_positions, token), 0, args.num_positions - 1)) {
    return -1;
  }
  return slot;
}

template <bool kPacked>
__global__ void __launch_bounds__(kThreads, 8) append_kernel(const __grid_constant__ AppendCall call) {
  const kvc_backend_layer& layer = call.layer;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize,
                parts = layer.row_kind == KVC_BACKEND_ROW_LATENT ? 1 : 2;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
  const int64_t rows_of_token = static_cast<int64_t>(layer.num_kv_heads) * parts;
  if (index >= call.args.num_tokens * rows_of_token) return;
  Row row;
  row.call = &call;
  row.token = index / rows_of_token;
  row.head = static_cast<int32_t>(index % layer.num_kv_heads);
  row.of_k = index % rows_of_token < layer.num_kv_heads;
  if (call.live_tokens != nullptr && row.token >= *call.live_tokens) return;
  const int64_t stored = slot_of(call, row.token, lane == 0 && index % rows_of_token == 0);
  if (stored < 0) return;
  row.batch_row = call.args.device_rows != nullptr ? call.args.device_rows[row.token] : 0;
  row.cos_sin = call.args.cos_sin == nullptr || !row.of_k ? nullptr : call.args.cos_sin + row.token * layer.rope_dim;
  if (row.of_k) {
    store_row<kPacked>(row, layer.k, layer.k_scales, layer.head_dim, stored, lane);
  } else {
    store_row<kPacked>(row, layer.v, layer.v_scales, layer.v_head_dim, stored, lane);
  }
}

// The words of one token in all heads: first the words of K, then the words of V.
KVC_HOST_DEVICE int32_t words_of_token(const kvc_backend_layer& layer, int32_t word_bytes) {
  const int64_t row_bytes = layer.k.row_bytes + (layer.row_kind == KVC_BACKEND_ROW_LATENT ? 0 : layer.v.row_bytes);
  return layer.num_kv_heads * static_cast<int32_t>(row_bytes) / word_bytes;
}
// Copies rows that are stored as they are given. A thread copies the same word of kTokens tokens, and loads all of
// these words before it stores the first. The second launch bound lets a thread use as many registers as six blocks on
// a multiprocessor allow. Without this bound, ptxas plans for more blocks on some GPUs, and spills registers.
template <class Word, int kTokens>
__global__ void __launch_bounds__(kThreads, 6) append_words_kernel(const __grid_constant__ AppendCall call) {
  const kvc_backend_layer& layer = call.layer;
  constexpr int32_t size = sizeof(Word);
  const int32_t words = words_of_token(layer, size), blocks = (words + kThreads - 1) / kThreads;
  const int32_t group = static_cast<int32_t>(blockIdx.x) / blocks;
  const int32_t place =
      (static_cast<int32_t>(blockIdx.x) - group * blocks) * kThreads + static_cast<int32_t>(threadIdx.x);
  if (place >= words) return;
  const int32_t k_words = layer.num_kv_heads * static_cast<int32_t>(layer.k.row_bytes) / size;
  const bool of_k = place < k_words;
  const int32_t within = of_k ? place : place - k_words,
                row_words = static_cast<int32_t>(of_k ? layer.k.row_bytes : layer.v.row_bytes) / size;
  const int32_t head = within / row_words, word = within - head * row_words;
  const kvc_backend_tensor& from = of_k ? call.args.k : call.args.v;
  const kvc_backend_pool& pool = of_k ? layer.k : layer.v;
  const int64_t element = element_bytes(type_of(from.dtype)),
                row_stride = of_k ? call.args.k_row_stride : call.args.v_row_stride;
  const unsigned char* const source =
      static_cast<const unsigned char*>(from.data) + head * from.head_stride * element + word * size;
  unsigned char* const target = static_cast<unsigned char*>(pool.data) + head * pool.head_stride_bytes + word * size;
  const int64_t first = int64_t{group} * kTokens,
                live = call.live_tokens != nullptr ? *call.live_tokens : call.args.num_tokens;
  Word moved[kTokens] = {};
  int64_t slots[kTokens];
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    const int64_t token = first + i;
    slots[i] = token < live ? slot_of(call, token, place == 0) : -1;
    if (token >= live) continue;
    const int64_t batch_row = call.args.device_rows != nullptr ? call.args.device_rows[token] : 0;
    moved[i] = *reinterpret_cast<const Word*>(source + (batch_row * row_stride + token * from.token_stride) * element);
  }
#pragma unroll
  for (int i = 0; i < kTokens; ++i) {
    if (slots[i] < 0) continue;
    *reinterpret_cast<Word*>(
        target + slot_bytes(slots[i], layer.page_size, pool.page_stride_bytes, pool.slot_stride_bytes)) = moved[i];
  }
}

// Whether K and V are stored as they are given: not rotated, of the pools' type, without scales of tokens, and not in
// two tensors for one row.
bool is_stored_as_given(const kvc_backend_append& args, const kvc_backend_layer& layer) {
  const Type type = stored_type(layer);
  return args.cos_sin == nullptr && !has_token_scales(&layer.k_scales) && type_of_rows(layer, args.k.dtype) == type &&
         (layer.row_kind == KVC_BACKEND_ROW_LATENT ? args.v.data == nullptr : type_of(args.v.dtype) == type);
}

// All addresses, strides and row sizes of tensors and pools, in bytes, combined by bitwise or.
uint64_t places_of(const kvc_backend_append& args, const kvc_backend_layer& layer) {
  const auto of = [](const kvc_backend_pool& pool, const kvc_backend_tensor& from, int64_t row_stride) {
    const int64_t strides = (from.token_stride | from.head_stride | row_stride) * element_bytes(type_of(from.dtype));
    return places_of_pool(pool) | static_cast<uint64_t>(strides) | reinterpret_cast<uintptr_t>(from.data);
  };
  const uint64_t of_k = of(layer.k, args.k, args.k_row_stride);
  return layer.row_kind == KVC_BACKEND_ROW_LATENT ? of_k : of_k | of(layer.v, args.v, args.v_row_stride);
}

}  // namespace

kvc_status append(kvc_backend_device* opened, const kvc_backend_append* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0 && max_tokens_of(args->step) == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  AppendCall call = {*args, *args->layer, live_tokens_of(args->step), device.faults.sink()};
  if (call.live_tokens != nullptr) call.args.num_tokens = max_tokens_of(args->step);
  const auto run = [&] {
    if (is_stored_as_given(*args, call.layer)) {
      return with_words(places_of(*args, call.layer), [&]<class Word>(Word) {
        const int32_t words = words_of_token(call.layer, static_cast<int32_t>(sizeof(Word)));
        const int64_t of_token = blocks_for(words, kThreads), tokens = call.args.num_tokens;
        const bool few = of_token * tokens <= kFewBlocks * device.multiprocessors;
        const int64_t blocks = of_token * (few ? tokens : (tokens + kTokensOfThread - 1) / kTokensOfThread);
        if (blocks > INT32_MAX) {
          return fail(error, KVC_ERROR_BATCH_TOO_LARGE, "%lld thread blocks of append", static_cast<long long>(blocks));
        }
        return launch("append", stream, {static_cast<unsigned>(blocks), 1, 1}, kThreads, 0, error,
                      few ? append_words_kernel<Word, 1> : append_words_kernel<Word, kTokensOfThread>, call);
      });
    }
    const int64_t rows =
        call.args.num_tokens * call.layer.num_kv_heads * (call.layer.row_kind == KVC_BACKEND_ROW_LATENT ? 1 : 2);
    const bool packed = is_packed(stored_type(call.layer));
    const size_t shared = has_rotated_rows(call.layer.format) ? kWarps * sizeof(float) * longest_row(call.layer) : 0;
    return launch("append", stream, {blocks_for(rows, kWarps), 1, 1}, kThreads, shared, error,
                  packed ? append_kernel<true> : append_kernel<false>, call);
  };
  if (args->slots == nullptr) return run();
  const kvc_status replayable = check_replayable(args->step, stream, error);
  if (replayable != KVC_OK) return replayable;
  if (args->step != nullptr) return run();
  Piece slots = piece_of(args->slots, args->num_tokens);
  return with_upload(&device.upload, &slots, 1, stream, error, [&] {
    call.args.slots = on_device<const int64_t>(slots);
    return run();
  });
}

}  // namespace kvc::kernels::cuda

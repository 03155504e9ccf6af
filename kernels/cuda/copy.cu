// copy_slots and gather: stored bytes and their scales moved as they are.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/scales.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/step.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct CopyCall {
  kvc_backend_layer layer;
  const kvc_backend_slot_copy* copies;  // on the device
  int64_t num_copies;
  int64_t k_bytes, v_bytes, scales;  // of one slot, all heads: bytes of K and V, and scales of K and as many of V
};

// A byte (or scale) of a head in a pool.
struct Column {
  unsigned char* data;
  int64_t page_stride, slot_stride, bytes;
};

__device__ __forceinline__ Column pool_column(const kvc_backend_pool& pool, int64_t element_bytes, int32_t dims,
                                              int64_t index) {
  const int64_t row_bytes = dims * element_bytes, head = index / row_bytes;
  return {static_cast<unsigned char*>(pool.data) + head * pool.head_stride * element_bytes + index % row_bytes,
          pool.page_stride * element_bytes, pool.slot_stride * element_bytes, 1};
}

__device__ __forceinline__ Column scale_column(const kvc_backend_scales& scales, int64_t head) {
  constexpr int64_t kBytes = sizeof(float);
  return {reinterpret_cast<unsigned char*>(scales.data + head * scales.head_stride), scales.page_stride * kBytes,
          scales.slot_stride * kBytes, kBytes};
}

// What a thread moves: the same place of every slot.
__device__ Column column_of(const CopyCall& call, int64_t index) {
  const kvc_backend_layer& layer = call.layer;
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  if (index < call.k_bytes) return pool_column(layer.k, bytes, layer.head_dim, index);
  index -= call.k_bytes;
  if (index < call.v_bytes) return pool_column(layer.v, bytes, layer.v_head_dim, index);
  index -= call.v_bytes;
  return index < call.scales ? scale_column(layer.k_scales, index) : scale_column(layer.v_scales, index - call.scales);
}

__device__ __forceinline__ unsigned char* in_slot(const Column& column, int64_t slot, int32_t page_size) {
  return column.data + slot / page_size * column.page_stride + slot % page_size * column.slot_stride;
}

// Copies take effect in their order, and each thread makes all of them for its own place in a slot: nobody waits for
// anybody. In one page source and target may overlap: slots go in the order that reads each before it is written.
__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ CopyCall call) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t scales = call.layer.v_in_k != 0 ? call.scales : 2 * call.scales;
  if (index >= call.k_bytes + call.v_bytes + scales) return;
  const Column column = column_of(call, index);
  for (int64_t i = 0; i < call.num_copies; ++i) {
    const kvc_backend_slot_copy copy = call.copies[i];
    const bool backwards = copy.target_slot > copy.source_slot;
    for (int32_t s = 0; s < copy.num_slots; ++s) {
      const int32_t slot = backwards ? copy.num_slots - 1 - s : s;
      const unsigned char* source = in_slot(column, copy.source_slot + slot, call.layer.page_size);
      unsigned char* target = in_slot(column, copy.target_slot + slot, call.layer.page_size);
      if (column.bytes == 1) {
        *target = *source;
      } else {
        *reinterpret_cast<float*>(target) = *reinterpret_cast<const float*>(source);
      }
    }
  }
}

struct GatherCall {
  kvc_backend_gather args;  // slots are on the device
  kvc_backend_layer layer;
  int64_t k_bytes, v_bytes, scales;  // of one slot; 0 where nothing is asked for
};

// A thread a byte of a slot's rows, or a scale.
__global__ void __launch_bounds__(kThreads) gather_kernel(const __grid_constant__ GatherCall call) {
  const kvc_backend_layer& layer = call.layer;
  const int64_t token_size = call.k_bytes + call.v_bytes + 2 * call.scales;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= token_size * call.args.num_tokens) return;
  const int64_t token = thread / token_size, slot = call.args.slots[token];
  const int64_t bytes = type_bytes(type_of(layer.dtype));
  int64_t index = thread % token_size;
  if (index < call.k_bytes) {
    const Column column = pool_column(layer.k, bytes, layer.head_dim, index);
    static_cast<unsigned char*>(call.args.k)[token * call.k_bytes + index] = *in_slot(column, slot, layer.page_size);
    return;
  }
  index -= call.k_bytes;
  if (index < call.v_bytes) {
    const Column column = pool_column(layer.v, bytes, layer.v_head_dim, index);
    static_cast<unsigned char*>(call.args.v)[token * call.v_bytes + index] = *in_slot(column, slot, layer.page_size);
    return;
  }
  index -= call.v_bytes;
  const bool of_k = index < call.scales;
  float* target = of_k ? call.args.k_scale : call.args.v_scale;
  if (target == nullptr) return;
  const Column column = scale_column(of_k ? layer.k_scales : layer.v_scales, of_k ? index : index - call.scales);
  target[token * call.scales + (of_k ? index : index - call.scales)] =
      *reinterpret_cast<const float*>(in_slot(column, slot, layer.page_size));
}

}  // namespace

kvc_status copy_slots(kvc_backend_device* opened, const kvc_backend_layer* layer, const kvc_backend_slot_copy* copies,
                      int64_t num_copies, void* stream, kvc_error* error) {
  if (num_copies == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const int64_t bytes = int64_t{layer->num_kv_heads} * type_bytes(type_of(layer->dtype));
  Piece piece = piece_of(copies, num_copies);
  return with_upload(&device.upload, &piece, 1, stream, error, [&] {
    const CopyCall call = {*layer,
                           on_device<const kvc_backend_slot_copy>(piece),
                           num_copies,
                           bytes * layer->head_dim,
                           layer->v_in_k != 0 ? 0 : bytes * layer->v_head_dim,
                           has_token_scales(&layer->k_scales) ? layer->num_kv_heads : 0};
    const int64_t columns = call.k_bytes + call.v_bytes + 2 * call.scales;
    return launch("copies of slots", stream, {blocks_for(columns, kThreads), 1, 1}, kThreads, 0, error, copy_kernel,
                  call);
  });
}

kvc_status gather(kvc_backend_device* opened, const kvc_backend_gather* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  const kvc_backend_layer& layer = *args->layer;
  const int64_t bytes = int64_t{layer.num_kv_heads} * type_bytes(type_of(layer.dtype));
  Piece slots = piece_of(args->step, args->slots, args->num_tokens);
  return with_upload(&device.upload, &slots, 1, stream, error, [&] {
    GatherCall call = {*args, layer, args->k != nullptr ? bytes * layer.head_dim : 0,
                       args->v != nullptr ? bytes * layer.v_head_dim : 0,
                       args->k_scale != nullptr || args->v_scale != nullptr ? layer.num_kv_heads : 0};
    call.args.slots = on_device<const int64_t>(slots);
    const int64_t threads = (call.k_bytes + call.v_bytes + 2 * call.scales) * args->num_tokens;
    return launch("gather", stream, {blocks_for(threads, kThreads), 1, 1}, kThreads, 0, error, gather_kernel, call);
  });
}

}  // namespace kvc::kernels::cuda

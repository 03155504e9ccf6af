// Chooses the instance of attend_decode_kernel for a call, and launches it.
//
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "kernels/cuda/attend/common/live_grid.h"
#include "kernels/cuda/attend/decode/kernel.cuh"
#include "kernels/cuda/attend/decode/launch.h"

namespace kvc::kernels::cuda {
namespace {

DecodeKernel decode_kernel(const AttendCall& call) {
  const bool is_f16 = type_of(call.args.q.dtype) == Type::kF16;
  switch (stored_type(call.layer)) {
    case Type::kE4m3:
      return decode_kernel_of_e4m3(call.layer);
    case Type::kU4:
      return is_f16 ? decode_kernel_of_f16_u4(call.layer) : decode_kernel_of_bf16_u4(call.layer);
    case Type::kE2m1:
      return decode_kernel_of_e2m1(call.layer);
    case Type::kI8:
      return decode_kernel_of_i8(call.layer);
    default:
      return is_f16 ? decode_kernel_of_f16(call.layer) : decode_kernel_of_bf16(call.layer);
  }
}

// Whether q can be copied unchanged, 16 aligned bytes at a time.
bool is_plain(const AttendCall& call) {
  const kvc_backend_attend& args = call.args;
  const int64_t elements = args.q.token_stride | args.q.head_stride | args.q_row_stride;
  return args.cos_sin == nullptr && args.cos_sin_sinks == nullptr && args.qv.data == nullptr && call.q_sign == 1.0f &&
         elements % 8 == 0 && reinterpret_cast<uintptr_t>(args.q.data) % 16 == 0;
}

// Whether 16 keys from a multiple of 16 on are always in one page, and all byte offsets within a page fit in int32. For
// 4-bit floats also whether their rows are adjacent and begin at a multiple of 16 bytes.
bool has_tiles_in_pages(const kvc_backend_layer& layer) {
  if (stored_type(layer) == Type::kE2m1 && !has_adjacent_rows(layer)) return false;
  const int64_t most = INT32_MAX / layer.page_size - layer.head_dim * 2;
  return layer.page_size % kDecodeKeys == 0 && layer.k.slot_stride_bytes < most && layer.v.slot_stride_bytes < most;
}

// Returns i if x is 2 to the power i. Otherwise returns -1.
int32_t shift_of(int32_t x) {
  const auto bits = static_cast<uint32_t>(x);
  return std::has_single_bit(bits) ? std::countr_zero(bits) : -1;
}

}  // namespace

DecodeShape shape_of_decode(const Device& device, const AttendCall& call) {
  return decode_shape(call.layer, type_of(call.args.q.dtype), kDecodeFixedBytes, device.shared_of_block,
                      device.shared_of_multiprocessor);
}

kvc_status launch_decode(const Device& device, const AttendCall& call, const DecodeShape& shape, int64_t blocks,
                         void* stream, kvc_error* error) {
  const kvc_backend_layer& layer = call.layer;
  DecodeCall decode = {call,
                       shape.stages,
                       0,
                       0,
                       is_plain(call) ? 1 : 0,
                       has_tiles_in_pages(layer) ? 1 : 0,
                       layer.num_q_heads / layer.num_kv_heads,
                       shift_of(layer.page_size)};
  decode.has_token_scales = has_token_scales(&layer.k_scales) ? 1 : 0;
  // Scales of tokens do not count here: they are loaded with the tiles (has_token_scales).
  const bool scaled = (layer.k_scales.data != nullptr && decode.has_token_scales == 0) ||
                      call.args.q_scales.data != nullptr || call.args.k_scales.data != nullptr;
  decode.has_units = scaled ? 1 : 0;
  const DecodeKernel kernel = decode_kernel(call);
  kvc_status status = allow_shared(device, kernel, "attention of few rows", error);
  const int32_t threads = decode_warps(layer.head_dim, stored_type(layer)) * kWarpSize;
  if (status == KVC_OK) {
    status = cap_blocks(device, call.live_blocks, reinterpret_cast<const void*>(kernel), threads, shape.shared_bytes,
                        &blocks, error);
  }
  if (status != KVC_OK) return status;
  return launch("attention of few rows", stream, {static_cast<unsigned>(blocks), 1, 1}, threads,
                static_cast<size_t>(shape.shared_bytes), error, kernel, decode);
}

}  // namespace kvc::kernels::cuda

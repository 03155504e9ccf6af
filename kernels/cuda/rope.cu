// rope_table makes the table of a RoPE class on the host, once. rope computes cos and sin of the positions of a step
// from that table, or reads them from the caller's tensors.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/common/rope_table.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/plan/indexes.cuh"
#include "kernels/cuda/step/step.h"

namespace kvc::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One thread computes one angle. positions and sets are in device memory. live_tokens: the number of tokens of the
// current step, in device memory; null: the number is args.num_tokens.
__global__ void __launch_bounds__(kThreads) rope_kernel(const kvc_backend_rope args, const int64_t* live_tokens) {
  const int32_t half = args.rope_dim / 2;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= static_cast<int64_t>(args.num_tokens) * half) return;
  const int64_t token = index / half;
  if (live_tokens != nullptr && token >= *live_tokens) return;
  const int32_t pair = static_cast<int32_t>(index % half);
  int32_t position;
  if (args.positions != nullptr) {
    position = args.positions[token];
  } else {
    const int64_t given = index_at(args.device_positions, token);
    if (!is_within(given, 0, args.num_positions - 1)) return;
    position = static_cast<int32_t>(given);
  }
  float* out = args.cos_sin + token * args.rope_dim;
  if (args.cos.data != nullptr) {
    out[pair] = load_element(type_of(args.cos.dtype), args.cos.data, position * args.cos.token_stride + pair);
    out[half + pair] = load_element(type_of(args.sin.dtype), args.sin.data, position * args.sin.token_stride + pair);
    return;
  }
  const double* table = rope_table_of_set(args.tables, half, args.sets != nullptr ? args.sets[token] : 0);
  rope_angle(table, half, position, pair, &out[pair], &out[half + pair]);
}

}  // namespace

kvc_status rope_table(kvc_backend_device* device, const kvc_backend_rope_table* args, kvc_error* error) {
  const CurrentDevice current(*device_of(device));
  const size_t bytes = static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX) *
                       static_cast<size_t>(args->rope_dim) * sizeof(double);
  double* const table = static_cast<double*>(malloc(bytes));
  if (table == nullptr) return fail(error, KVC_ERROR_OUT_OF_MEMORY, "the host refused memory for a table of RoPE");
  fill_rope_table(args, table);
  const kvc_status status =
      copy_and_wait(*device_of(device), args->table, table, static_cast<int64_t>(bytes), "a table of RoPE", error);
  free(table);
  return status;
}

kvc_status rope(kvc_backend_device* opened, const kvc_backend_rope* args, void* stream, kvc_error* error) {
  if (args->num_tokens == 0 && max_tokens_of(args->step) == 0) return KVC_OK;
  Device& device = *device_of(opened);
  const CurrentDevice current(device);
  kvc_backend_rope on = *args;
  const int64_t* const live_tokens = live_tokens_of(args->step);
  if (live_tokens != nullptr) on.num_tokens = max_tokens_of(args->step);
  const auto run = [&] {
    return launch("rope", stream, {blocks_for(int64_t{on.num_tokens} * (args->rope_dim / 2), kThreads), 1, 1}, kThreads,
                  0, error, rope_kernel, on, live_tokens);
  };
  if (args->positions == nullptr) return run();
  const kvc_status replayable = check_replayable(args->step, stream, error);
  if (replayable != KVC_OK) return replayable;
  if (args->step != nullptr) return run();
  Piece pieces[] = {piece_of(args->positions, args->num_tokens), piece_of(args->sets, args->num_tokens)};
  return with_upload(&device.upload, pieces, 2, stream, error, [&] {
    on.positions = on_device<const int32_t>(pieces[0]);
    on.sets = on_device<const int32_t>(pieces[1]);
    return run();
  });
}

}  // namespace kvc::kernels::cuda

// rope_table() makes the table of a RoPE class, which is the class of all layers with the same RoPE setting. rope()
// computes cos and sin of a step's positions from that table. Roofline of a step: an angle takes at most one complex
// product in float64 for each digit of the position, about a nanosecond. sin and cos of the C library take 7 times
// (decode) to 25 times (prefill) as long.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/common/rope_table.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/parallel.h"

namespace kvc::kernels {
namespace {

// Copies rows of the caller's cos and sin arrays, which replace the tables.
void copy_rows(const kvc_backend_device& device, const kvc_backend_rope& args, int64_t begin, int64_t end) {
  const int32_t half = args.rope_dim / 2;
  const auto copy = [&](const kvc_backend_tensor& from, int64_t position, float* to) {
    const Type type = type_of(from.dtype);
    const auto* data = static_cast<const unsigned char*>(from.data);
    device.implementation->convert_row(Type::kF32, to, type, data + position * from.token_stride * element_bytes(type),
                                       half);
  };
  for (int64_t t = begin; t < end; ++t) {
    copy(args.cos, args.positions[t], args.cos_sin + t * args.rope_dim);
    copy(args.sin, args.positions[t], args.cos_sin + t * args.rope_dim + half);
  }
}

}  // namespace

kvc_status rope_table(kvc_backend_device*, const kvc_backend_rope_table* args, kvc_error*) {
  const DefaultFloatEnvironment environment;
  fill_rope_table(args, args->table);
  return KVC_OK;
}

kvc_status rope(kvc_backend_device* device, const kvc_backend_rope* args, void*, kvc_error*) {
  const int32_t half = args->rope_dim / 2;
  // An angle takes about as long as a copy of 8 bytes.
  parallel_chunks(device, args->num_tokens, half * int64_t{8}, [&](int64_t begin, int64_t end) {
    if (args->cos.data != nullptr) {
      copy_rows(*device, *args, begin, end);
      return;
    }
    double coarse[kMaxHeadDim];
    int32_t coarse_position = -1, coarse_set = 0;
    for (int64_t t = begin; t < end; ++t) {
      const int32_t position = args->positions[t], set = args->sets != nullptr ? args->sets[t] : 0;
      const double* table = rope_table_of_set(args->tables, half, set);
      if (position >> KVC_BACKEND_ROPE_RADIX_LOG2 != coarse_position || set != coarse_set) {
        rope_coarse(table, half, position, coarse);
        coarse_position = position >> KVC_BACKEND_ROPE_RADIX_LOG2;
        coarse_set = set;
      }
      rope_fine(table, half, position, coarse, args->cos_sin + t * args->rope_dim);
    }
  });
  return KVC_OK;
}

}  // namespace kvc::kernels

// See merge_tile.h. A few rows of at most 512 floats: bandwidth of L2, no SIMD of its own.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/merge_tile.h"

#include "kernels/common/merge.h"

namespace kvc::kernels {
namespace {

// An item's partial states: o[states][dims], m[states], l[states].
struct Partials {
  const float *o, *m, *l;
};

Partials partials_of(const kvc_backend_attend& args, const kvc_backend_item& item, int64_t states, int64_t dims) {
  const float* base = args.partials + item.partial_offset;
  return {base, base + states * dims, base + states * dims + states};
}

}  // namespace

void merge_tile(const kvc_backend_attend& args, const kvc_backend_tile& tile, const Implementation& implementation,
                float* row) {
  const kvc_backend_layer& layer = *args.layer;
  const kvc_backend_item& first = args.items[tile.item_begin];  // all items of a tile have its rows and heads
  const int64_t group = layer.num_q_heads / layer.num_kv_heads, dims = layer.v_head_dim;
  const int64_t heads = (first.head_end - first.head_begin) * group;
  const int64_t states = heads * (first.q_end - first.q_begin);
  const int64_t token_begin = args.rows->token_begin[first.row] + first.q_begin;
  const Type type = type_of(args.out.dtype);
  for (int64_t state = 0; state < states; ++state) {
    const Partials start = partials_of(args, first, states, dims);
    float m = start.m[state], l = start.l[state];
    memcpy(row, start.o + state * dims, static_cast<size_t>(dims) * sizeof(float));
    for (int32_t i = tile.item_begin + 1; i < tile.item_end; ++i) {
      const Partials next = partials_of(args, args.items[i], states, dims);
      merge_state(row, &m, &l, next.o + state * dims, next.m[state], next.l[state], static_cast<int32_t>(dims));
    }
    const int64_t token = token_begin + state / heads, head = first.head_begin * group + state % heads;
    const float* sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    const FinalState final = final_state(static_cast<double>(m), static_cast<double>(l), sink);
    const float scale = static_cast<float>(final.scale);
    for (int64_t d = 0; d < dims; ++d) row[d] *= scale;
    unsigned char* out = static_cast<unsigned char*>(args.out.data) +
                         (token * args.out.token_stride + head * args.out.head_stride) * type_bytes(type);
    implementation.convert_row(type, out, Type::kF32, row, static_cast<int32_t>(dims));
    if (args.lse != nullptr) {
      memcpy(args.lse + token * args.lse_token_stride + head * args.lse_head_stride, &final.lse, sizeof final.lse);
    }
  }
}

}  // namespace kvc::kernels

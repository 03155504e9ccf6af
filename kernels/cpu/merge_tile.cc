// merge_tile() merges few rows of at most kMaxHeadDim floats, at the bandwidth of the level-2 cache. So it needs no
// SIMD code.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/merge_tile.h"

#include "kernels/common/merge.h"
#include "kernels/common/query_place.h"

namespace kvc::kernels {
namespace {

// The partial states of an item, or of one row's queries in a shared item (kvc_backend_span).
struct Partials {
  const float *o, *m, *l;
};

Partials partials_at(const kvc_backend_attend& args, int64_t offset, int64_t states, int64_t dims) {
  const float* base = args.plan->partials + offset;
  return {base, base + states * dims, base + states * dims + states};
}

}  // namespace

void merge_tile(const kvc_backend_attend& args, const kvc_backend_tile& tile, const Implementation& implementation,
                Scratch* scratch) {
  const kvc_backend_layer& layer = *args.layer;
  const kvc_backend_plan_arrays& plan = args.plan->arrays;
  const kvc_backend_item& first = plan.items[tile.item_begin];  // all items of a tile have the same queries and heads
  const int64_t group = layer.num_q_heads / layer.num_kv_heads, dims = layer.v_head_dim;
  const int64_t heads = (first.head_end - first.head_begin) * group;
  const int64_t states = heads * (first.q_end - first.q_begin);
  const int64_t token_begin = plan.rows.token_begin[first.row] + first.q_begin;
  const int32_t parts = tile.part_end - tile.part_begin, own = tile.item_end - tile.item_begin;
  const Type type = type_of(args.out.dtype);
  for (int64_t state = 0; state < states; ++state) {
    double *sums = scratch->merged_row, l = 0.0;
    float *row = scratch->row, m = -INFINITY;
    for (int32_t i = 0; i < parts + own; ++i) {
      const int64_t offset =
          i < parts ? plan.parts[tile.part_begin + i] : plan.items[tile.item_begin + i - parts].partial_offset;
      const Partials next = partials_at(args, offset, states, dims);
      if (i == 0) {
        m = next.m[state];
        l = static_cast<double>(next.l[state]);
        for (int64_t d = 0; d < dims; ++d) sums[d] = static_cast<double>(next.o[state * dims + d]);
      } else {
        merge_state(sums, &m, &l, next.o + state * dims, next.m[state], next.l[state], static_cast<int32_t>(dims));
      }
    }
    const int64_t token = token_begin + state / heads, head = first.head_begin * group + state % heads;
    const float* sink = args.sinks == nullptr ? nullptr : args.sinks + head;
    // l is first rounded to float32, as it is in a partial state. So in a deterministic cache, the bits of the output
    // do not depend on whether one item or several items computed the keys of the row.
    const FinalState final = final_state(static_cast<double>(m), static_cast<double>(static_cast<float>(l)), sink);
    for (int64_t d = 0; d < dims; ++d) {
      row[d] = static_cast<float>(static_cast<double>(static_cast<float>(sums[d])) * final.scale);
    }
    unsigned char* out =
        static_cast<unsigned char*>(args.out.data) + out_element(args, first.row, token, head) * element_bytes(type);
    implementation.convert_row(type, out, Type::kF32, row, static_cast<int32_t>(dims));
    if (args.lse != nullptr) {
      memcpy(args.lse + lse_element(args, first.row, token, head), &final.lse, sizeof final.lse);
    }
  }
}

}  // namespace kvc::kernels

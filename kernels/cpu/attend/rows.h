// Loads rows of q, converts and rotates rows, and writes the output of a finished row.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/convert.h"
#include "kernels/common/merge.h"
#include "kernels/common/scales.h"
#include "kernels/cpu/attend/view.h"
#include "kernels/cpu/nibbles.h"

namespace kvc::kernels::KVC_TARGET {

template <class Target, class Source>
static void convert_elements(unsigned char* target, const unsigned char* source, int32_t n) {
  int32_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_as(Target{}, target + i * sizeof(Target), load_as(Source{}, source + i * sizeof(Source)));
  }
  if (i < n) {
    const F32 v = load_as_first(Source{}, source + i * sizeof(Source), n - i);
    store_as_first(Target{}, target + i * sizeof(Target), v, n - i);
  }
}

static void convert_row(Type target_type, void* target, Type source_type, const void* source, int32_t n) {
  if (target_type == source_type) {
    memcpy(target, source, static_cast<size_t>(n) * static_cast<size_t>(element_bytes(source_type)));
    return;
  }
  using Convert = void (*)(unsigned char*, const unsigned char*, int32_t);
  static constexpr Convert table[3][3] = {
      {nullptr, convert_elements<float, F16>, convert_elements<float, Bf16>},
      {convert_elements<F16, float>, nullptr, convert_elements<F16, Bf16>},
      {convert_elements<Bf16, float>, convert_elements<Bf16, F16>, nullptr},
  };
  table[static_cast<int>(target_type)][static_cast<int>(source_type)](static_cast<unsigned char*>(target),
                                                                      static_cast<const unsigned char*>(source), n);
}

// Rotates the pairs of dims (2i, 2i + 1) in rotated[0, 2 * half).
static void rotate_neighbours(float* __restrict rotated, const float* __restrict cos_sin, int32_t half) {
  for (int32_t i = 0; i < half; ++i) {
    const float x = rotated[2 * i], y = rotated[2 * i + 1], c = cos_sin[i], s = cos_sin[half + i];
    rotated[2 * i] = x * c - y * s;
    rotated[2 * i + 1] = y * c + x * s;
  }
}

static void rotate_row(const kvc_backend_layer* layer, const float* cos_sin, float* row) {
  const int32_t half = layer->rope_dim / 2;
  float *a = row + layer->rope_offset, *b = a + half;
  if (layer->rope_interleaved != 0) {
    rotate_neighbours(a, cos_sin, half);
    return;
  }
  const float *c = cos_sin, *s = cos_sin + half;
  int32_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32 x = load(a + i), y = load(b + i), cos = load(c + i), sin = load(s + i);
    store(a + i, sub(mul(x, cos), mul(y, sin)));
    store(b + i, add(mul(y, cos), mul(x, sin)));
  }
  for (; i < half; ++i) {
    const float x = a[i], y = b[i];
    a[i] = x * c[i] - y * s[i];
    b[i] = y * c[i] + x * s[i];
  }
}

// Converts a stored row to float32. The caller must multiply the results for E4m3 by kE4m3Unit.
static void row_to_float(Type type, const unsigned char* from, int32_t n, float* to) {
  unsigned char* target = reinterpret_cast<unsigned char*>(to);
  switch (type) {
    case Type::kE4m3:
      convert_elements<float, E4m3>(target, from, n);
      break;
    case Type::kE5m2:
      convert_elements<float, E5m2>(target, from, n);
      break;
    case Type::kI8:
      convert_elements<float, I8>(target, from, n);
      break;
    default:
      convert_row(Type::kF32, to, type, from, n);
      break;
  }
}

KVC_INLINE const unsigned char* query_row(const kvc_backend_tensor& tensor, int64_t row_stride, const QueryPlace& place,
                                          int32_t head) {
  const int64_t element = place.token * tensor.token_stride + place.row * row_stride + head * tensor.head_stride;
  return static_cast<const unsigned char*>(tensor.data) + element * element_bytes(type_of(tensor.dtype));
}

// Loads a row of the caller's q or qv to out[0, n).
static void load_query_part(const kvc_backend_tensor& tensor, int64_t row_stride, const QueryPlace& place, int32_t head,
                            int32_t n, float* out) {
  row_to_float(type_of(tensor.dtype), query_row(tensor, row_stride, place, head), n, out);
}

KVC_INLINE void prefetch_row(const unsigned char* row, int32_t bytes) {
  for (int32_t b = 0; b < bytes; b += 64) prefetch(row + b);
}

KVC_INLINE void prefetch_query(const View& view, const QueryPlace& place, int32_t head) {
  const kvc_backend_tensor& q = view.args->q;
  prefetch_row(query_row(q, view.args->q_row_stride, place, head), view.head_dim * element_bytes(type_of(q.dtype)));
}

// Prefetches the row of `out` that finish_row will write. The function does nothing if the row becomes a partial state.
KVC_INLINE void prefetch_output(const View& view, const QueryPlace& place, int32_t head) {
  const kvc_backend_tensor& out = view.args->out;
  if (place.partial_offset >= 0) return;
  const int32_t bytes = element_bytes(type_of(out.dtype));
  const int64_t element = out_element(*view.args, place.row, place.token, head);
  prefetch_row(static_cast<const unsigned char*>(out.data) + element * bytes, view.v_head_dim * bytes);
}

// Returns the factor by which a row of q is multiplied when it is loaded. It is the product of the call's scales of q
// and K (row_factor), the scale of the K head (head_scale), and the sign of the softmax scale. If q or K is E4m3, the
// product also contains kE4m3Unit for each of them. Formats with kRowFactors multiply the scores by this factor
// instead.
KVC_INLINE float query_factor(const View& view, const QueryPlace& place, int32_t head) {
  const kvc_backend_attend& args = *view.args;
  const int32_t kv_head = head / view.group;
  const float q_unit = type_of(args.q.dtype) == Type::kE4m3 ? kE4m3Unit : 1.0f;
  const float row_scale =
      row_factor(&args.q_scales, place.row, kv_head) * row_factor(&args.k_scales, place.row, kv_head);
  return view.q_sign * view.stored_unit * head_scale(&view.layer->k_scales, kv_head) * (q_unit * row_scale);
}

KVC_INLINE const float* query_angles(const View& view) {
  return view.item->part == KVC_BACKEND_PART_SINKS ? view.args->cos_sin_sinks : view.args->cos_sin;
}

// Returns whether load_query would give the numbers of the caller unchanged.
KVC_INLINE bool takes_query_as_it_is(const View& view, const QueryPlace& place, int32_t head) {
  return view.args->qv.data == nullptr && query_angles(view) == nullptr && query_factor(view, place, head) == 1.0f;
}

// Writes a row of q to out[0, D) in the form that the kernels use, and sets out[D, padded) to zero. place, head: the
// query and its q head. If the call rotates q by RoPE, the row is rotated and rounded to q's type. If K is stored
// rotated (hadamard.h), the row is rotated in that way too. Then the row is multiplied by `factor`: query_factor, or 1
// if the scores are multiplied by that factor.
static void load_query(const View& view, const QueryPlace& place, int32_t head, int32_t padded, float factor,
                       float* out) {
  const kvc_backend_attend& args = *view.args;
  const Type type = type_of(args.q.dtype);
  const int32_t q_begin = args.qv.data != nullptr ? view.v_head_dim : 0;
  if (q_begin > 0) load_query_part(args.qv, args.qv_row_stride, place, head, q_begin, out);
  load_query_part(args.q, args.q_row_stride, place, head, view.head_dim - q_begin, out + q_begin);
  if (const float* cos_sin = query_angles(view); cos_sin != nullptr) {
    rotate_row(view.layer, cos_sin + int64_t{place.token} * view.layer->rope_dim, out);
    if (type != Type::kF32) {
      unsigned char rounded[kMaxHeadDim * 2];
      convert_row(type, rounded, Type::kF32, out, view.head_dim);
      convert_row(Type::kF32, out, type, rounded, view.head_dim);
    }
  }
  if (view.k_rotation > 0 && view.key_table == nullptr) {  // with RoPE on read, stage_keys undoes this rotation of K
    spread_row(out, view.head_dim, view.k_rotation);
    factor /= static_cast<float>(view.k_rotation);
  }
  if (factor != 1.0f) {
    for (int32_t d = 0; d < view.head_dim; ++d) out[d] *= factor;
  }
  for (int32_t d = view.head_dim; d < padded; ++d) out[d] = 0.0f;
}

// m and l of a row's partial state, as kernels/common/merge.h defines them.
struct RowState {
  float m, l;
};

// Multiplies o by the scales by which V was not multiplied when it was loaded: view.stored_unit, head_scale and
// row_factor. Then undoes the rotation of stored V (hadamard.h).
KVC_INLINE void scale_values(const View& view, int32_t head, float* o) {
  const int32_t kv_head = head / view.group;
  const float factor = view.stored_unit * head_scale(&view.layer->v_scales, kv_head) *
                       row_factor(&view.args->v_scales, view.item->row, kv_head);
  for (int32_t d = 0; d < view.v_head_dim && factor != 1.0f; ++d) o[d] *= factor;
  if (view.v_rotation > 0) gather_row(o, view.v_head_dim, view.v_rotation);
}

// Converts a state to the form of partial states. o: [Dv] in the order of dims, changed in place. largest: m
// before it is multiplied by view.natural_scale.
static RowState round_state(const View& view, int32_t head, float* o, float largest, float l) {
  const double exact_m = static_cast<double>(largest) * view.natural_scale;
  scale_values(view, head, o);
  // Rounding m to float32 changes the weight of the state. l and o are corrected for this change.
  RowState state = {KVC_NEG_INF, 0.0f};
  float correction = 0.0f;
  if (l != 0.0f) {
    state.m = static_cast<float>(exact_m);
    correction = static_cast<float>(__builtin_exp(exact_m - static_cast<double>(state.m)));
    state.l = l * correction;
  }
  for (int32_t d = 0; d < view.v_head_dim; ++d) o[d] = l != 0.0f ? o[d] * correction : 0.0f;
  return state;
}

static void store_state(const View& view, const QueryPlace& place, int32_t head, const float* o, RowState state) {
  const int64_t states = place.states, index = place.first_state + head, dims = view.v_head_dim;
  float* partial = view.args->plan->partials + place.partial_offset;
  memcpy(partial + index * dims, o, static_cast<size_t>(dims) * sizeof(float));
  partial[states * dims + index] = state.m;
  partial[states * dims + states + index] = state.l;
}

// Normalises the state of a row over all keys in place, and writes output and LSE.
static void write_output(const View& view, const QueryPlace& place, int32_t head, float* o, double m, double l) {
  const kvc_backend_attend& args = *view.args;
  const int64_t token = place.token;
  const float* sink = args.sinks == nullptr ? nullptr : args.sinks + head;
  const FinalState final = final_state(m, l, sink);
  for (int32_t d = 0; d < view.v_head_dim; ++d) {
    o[d] = l != 0.0 ? static_cast<float>(static_cast<double>(o[d]) * final.scale) : 0.0f;
  }
  const Type type = type_of(args.out.dtype);
  unsigned char* target =
      static_cast<unsigned char*>(args.out.data) + out_element(args, place.row, token, head) * element_bytes(type);
  convert_row(type, target, Type::kF32, o, view.v_head_dim);
  if (args.lse != nullptr) {
    memcpy(args.lse + lse_element(args, place.row, token, head), &final.lse, sizeof final.lse);
  }
}

// Finishes one row: writes its partial state, or normalises it and writes the output. o: [Dv] in the order of dims; the
// function may change o. largest: m of the state, before it is multiplied by view.natural_scale.
static void finish_row(const View& view, const QueryPlace& place, int32_t head, float* o, float largest, double l) {
  if (place.partial_offset >= 0) {
    const RowState state = round_state(view, head, o, largest, static_cast<float>(l));
    store_state(view, place, head, o, state);
    return;
  }
  scale_values(view, head, o);
  write_output(view, place, head, o, static_cast<double>(largest) * view.natural_scale, l);
}

}  // namespace kvc::kernels::KVC_TARGET

// A ForeignCache describes a caller's K and V tensors in the form that a backend needs: two pools with strides. In a
// cache without a block table, a page has the tokens of a whole sequence.
#pragma once

#include "base/status.h"
#include "context/context.h"
#include "kvcache_backend.h"
#include "tensor/tensor_check.h"

namespace kvc {

struct ForeignCache {
  TensorView k, v;               // [pages, page_size, Hkv, dims]; v has no data if it was not given
  kvc_backend_layer layer = {};  // storage, shapes and dtype of both tensors; num_q_heads is num_kv_heads

  // Checks the tensors. written: the call appends to them. v: nullable (latent rows).
  static Status read(const DLTensor* k, const DLTensor* v, bool written, DLDevice device, ForeignCache* out);
};

// A caller's cos and sin, [positions, rotary_dim / 2] each.
struct RotaryTables {
  TensorView cos, sin;  // without data if none are given
  int64_t positions() const noexcept { return cos.shape[0]; }
  int32_t rotary_dim() const noexcept { return 2 * static_cast<int32_t>(cos.shape[1]); }
  bool given() const noexcept { return cos.rank != 0; }

  // Checks the tensors. Both must be given, or none. rotary_dim must be at most head_dim.
  static Status read(const DLTensor* cos, const DLTensor* sin, int32_t head_dim, DLDevice device, RotaryTables* out);
  int64_t cos_sin_floats(int64_t tokens) const noexcept { return given() ? tokens * rotary_dim() : 0; }
  // Copies the rows at `positions` [tokens], as float32, to cos_sin [tokens, 2, rotary_dim / 2]. step: nullable; the
  // step that has the positions on a device.
  Status rows_at(const Context& context, const int32_t* positions, int64_t tokens, const kvc_backend_step* step,
                 void* stream, float* cos_sin) const;
  // Does the same for positions on the device, which the host does not read. If the tables have no row for the position
  // of a token, the token's cos and sin keep their old values.
  Status rows_at(const Context& context, const kvc_backend_indexes& positions, int64_t tokens, void* stream,
                 float* cos_sin) const;

 private:
  Status rows_at(const Context& context, kvc_backend_rope* args, int64_t tokens, void* stream, float* cos_sin) const;
};

// Converts numbers [n] of float32, float16 or bfloat16 to float32 on the stream. out: [2 * n]; the first half gets the
// results.
Status to_float32(const Context& context, const TensorView& numbers, void* stream, float* out);
constexpr int64_t float32_copy_floats(int64_t n) noexcept { return 2 * n; }

// Describes rows [tokens, heads, dims] for a backend.
kvc_backend_tensor rows_of(const TensorView& t) noexcept;

}  // namespace kvc

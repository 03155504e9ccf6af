// Checks callers' tensors and converts them to what a backend takes. Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"

namespace kvc {

// Rows of tokens: a tensor [>= tokens, heads, dims] of float32, float16 or bfloat16, or of `stored`, on `device`.
struct RowsSpec {
  const char* name;  // for messages
  int64_t tokens;
  int64_t heads;
  int64_t dims;
  DLDevice device;
  bool written = false;           // elements must not overlap
  DLDataType stored = {0, 0, 0};  // nullable: a quantised type that is taken too, under its own code or as uint8
};

Status check_rows(const DLTensor* tensor, const RowsSpec& spec, kvc_backend_tensor* out);

// K and V of a step as a caller gives them.
struct KvTensors {
  const DLTensor* k;
  const DLTensor* v;        // nullable if the layer's V is in its K
  const DLTensor* k_scale;  // nullable, as v_scale
  const DLTensor* v_scale;
  bool as_stored;
};

// And as a backend takes them. Without data: scales that are not needed.
struct KvRows {
  kvc_backend_tensor k, v, k_scale, v_scale;
};

// Scales of `rows`, which were checked: there exactly if they are int8 as stored.
Status check_scale_rows(const DLTensor* tensor, const char* name, const kvc_backend_tensor& rows,
                        const kvc_backend_layer& layer, int64_t tokens, DLDevice device, kvc_backend_tensor* out);

// Checks K and V of a layer, and that scales are there exactly if they are int8 as stored.
Status check_kv_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                     KvRows* out);

// [>= tokens, heads] float32, written.
Status check_lse(const DLTensor* tensor, const RowsSpec& spec, float** data, int64_t* token_stride,
                 int64_t* head_stride);

// States of a batch: [>= rows, shape...] of `dtype`, each row compact.
Status check_states(const DLTensor* tensor, const char* name, int64_t rows, DLDataType dtype, int32_t rank,
                    const int64_t* shape, DLDevice device, bool written, kvc_backend_states* out);

// [heads] float32, stride 1.
Status check_heads(const DLTensor* tensor, const char* name, int64_t heads, DLDevice device, const float** data);

// cos and sin of tokens: [>= tokens, 2, half] float32, compact.
Status check_cos_sin(const DLTensor& tensor, const char* name, int64_t tokens, int64_t half, DLDevice device,
                     const float** data);

// Any tensor of a call: what it must be, and what it is.
struct TensorSpec {
  const char* name;  // for messages
  DLDevice device;
  int32_t rank;                         // at most 5
  const int64_t* shape;                 // [rank]; -1 = any size, and the first dim may be larger than asked for
  const char* letters;                  // of the shape, for messages
  bool dense = true;                    // innermost stride 1
  bool written = false;                 // elements must not overlap
  bool (*takes)(DLDataType) = nullptr;  // nullable, then any dtype is taken
  const char* dtypes = nullptr;         // what `takes` takes, for messages
  DLDataType stored = {0, 0, 0};        // taken too
};
struct TensorView {
  char* data = nullptr;  // of the first element; null if there is none
  DLDataType dtype = {0, 0, 0};
  int32_t rank = 0;
  int64_t shape[5] = {};
  int64_t strides[5] = {};  // in elements
};
Status check_tensor(const DLTensor* tensor, const TensorSpec& spec, TensorView* out);

bool is_float32_dtype(DLDataType dtype);
bool is_float_dtype(DLDataType dtype);   // float32, float16, bfloat16
bool is_float8_dtype(DLDataType dtype);  // e4m3fn, e5m2
bool same_dtype(DLDataType a, DLDataType b);

// An adopted pool: exactly `rank` dims, shape[0] >= shape_wanted[0] and the others equal, `dtype`, innermost stride 1,
// elements that do not overlap (float8 also as uint8). Fills strides (in elements, compact if the tensor has none).
Status check_pool(const DLManagedTensorVersioned& tensor, const char* name, int64_t layer, DLDevice device,
                  DLDataType dtype, int32_t rank, const int64_t* shape_wanted, int64_t* strides);

}  // namespace kvc

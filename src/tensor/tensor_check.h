// Checks tensors of callers, and converts them to structs of a backend. Pure functions; any thread.
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
  bool written = false;  // elements must not overlap
  // Nullable. If it is quantised, rows as stored are accepted too: bytes, or elements of its dtype.
  const kvc_backend_row_format* stored = nullptr;
};

Status check_rows(const DLTensor* tensor, const RowsSpec& spec, kvc_backend_tensor* out);

// K and V of a step as a caller gives them.
struct KvTensors {
  const DLTensor* k;
  const DLTensor* v;        // nullable for latent rows and keys only
  const DLTensor* k_scale;  // k_scale and v_scale are nullable
  const DLTensor* v_scale;
  bool as_stored;
};

// K and V of a step as a backend takes them. Scales that are not needed have no data.
struct KvRows {
  kvc_backend_tensor k, v, k_scale, v_scale;
};

// Checks the scales of `rows`, which check_rows has accepted. Scales must be given if the rows are stored bytes of a
// format whose scales lie in the page (int8, uint4), and only then.
Status check_scale_rows(const DLTensor* tensor, const char* name, const kvc_backend_tensor& rows,
                        const kvc_backend_layer& layer, int64_t tokens, DLDevice device, kvc_backend_tensor* out);

// Checks K and V of a layer, and their scales (check_scale_rows).
Status check_kv_rows(const KvTensors& tensors, const kvc_backend_layer& layer, int64_t tokens, DLDevice device,
                     KvRows* out);

// Checks an LSE tensor: [>= tokens, heads] float32.
Status check_lse(const DLTensor* tensor, const RowsSpec& spec, float** data, int64_t* token_stride,
                 int64_t* head_stride);

// Checks states of a batch: [>= rows, shape...] of `dtype`. Each row must be compact.
Status check_states(const DLTensor* tensor, const char* name, int64_t rows, DLDataType dtype, int32_t rank,
                    const int64_t* shape, DLDevice device, bool written, kvc_backend_states* out);

// Checks a float32 tensor [heads] with stride 1.
Status check_heads(const DLTensor* tensor, const char* name, int64_t heads, DLDevice device, const float** data);

// Checks cos and sin of tokens: [>= tokens, 2, half] float32, compact.
Status check_cos_sin(const DLTensor& tensor, const char* name, int64_t tokens, int64_t half, DLDevice device,
                     const float** data);

// What a tensor of a call must be (TensorSpec), and what it is (TensorView).
struct TensorSpec {
  const char* name;  // for messages
  DLDevice device;
  int32_t rank;                         // at most 5
  const int64_t* shape;                 // [rank]; -1 = any size; the first dim may be larger
  const char* letters;                  // the shape as text, for messages
  bool dense = true;                    // innermost stride 1
  bool written = false;                 // elements must not overlap
  bool (*takes)(DLDataType) = nullptr;  // null = any dtype is accepted
  const char* dtypes = nullptr;         // the dtypes that `takes` accepts, for messages
  DLDataType stored = {0, 0, 0};        // a dtype that is also accepted
};
struct TensorView {
  char* data = nullptr;  // the first element; null if there is none
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

// Checks a pool that the cache adopts. It must have exactly `rank` dims, shape[0] >= shape_wanted[0], and the other
// dims as wanted. It must have `dtype` (a quantised type may come as uint8), innermost stride 1, and no elements that
// overlap. Fills `strides`, in elements; they are compact if the tensor has none.
Status check_pool(const DLManagedTensorVersioned& tensor, const char* name, int64_t layer, DLDevice device,
                  DLDataType dtype, int32_t rank, const int64_t* shape_wanted, int64_t* strides);

}  // namespace kvc

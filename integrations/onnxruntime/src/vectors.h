// Vectors: the queries, keys or values within a tensor, [batch, tokens, heads, dims] by strides.
#pragma once

#include "attention_context.h"
#include "tensor.h"

namespace kvc_ort {

struct Vectors {
  char* data = nullptr;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  int64_t batch = 0, tokens = 0, heads = 0, dims = 0;
  int64_t batch_stride = 0, token_stride = 0, head_stride = 0;  // in elements

  int64_t bytes() const { return batch * tokens * heads * dims * static_cast<int64_t>(element_bytes(type)); }
  char* at(int64_t row, int64_t token, int64_t head) const;
  Vectors from(int64_t token, int64_t count) const;  // `count` tokens of each row
  View view() const;
  View pages() const;  // each token as a page of one; token t of row b is page b * batch_stride / token_stride + t
};

// One of the `parts` of a tensor [batch, tokens, heads * parts * dims], in which each head has its parts side by side.
Vectors tokens_first(const Operand& operand, int64_t heads, int64_t part = 0, int64_t parts = 1);
Vectors heads_first(const Operand& operand);  // [batch, heads, tokens, dims]

// The same sizes in new memory, [batch, tokens, heads, dims].
Vectors packed_like(const Vectors& vectors, void* data);

// Copies all vectors, and adds `bias` of [heads, dims], if it is not NULL. Types: float32; float16.
void copy(const OrtKernelContext* run, const Vectors& from, const void* bias, const Vectors& to);

}  // namespace kvc_ort

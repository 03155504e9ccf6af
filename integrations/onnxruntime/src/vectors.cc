#include "vectors.h"

#include <cstring>

namespace kvc_ort {
namespace {

template <class T>
void add(const char* from, const char* bias, int64_t dims, char* to) {
  const T* left = reinterpret_cast<const T*>(from);
  const T* right = reinterpret_cast<const T*>(bias);
  T* sum = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < dims; i++) sum[i] = static_cast<T>(left[i] + right[i]);
}

}  // namespace

char* Vectors::at(int64_t row, int64_t token, int64_t head) const {
  const int64_t element = row * batch_stride + token * token_stride + head * head_stride;
  return data + element * static_cast<int64_t>(element_bytes(type));
}

Vectors Vectors::from(int64_t token, int64_t count) const {
  Vectors some = *this;
  some.data = at(0, token, 0);
  some.tokens = count;
  return some;
}

View Vectors::view() const {
  return View(data, dl_type(type), {batch, tokens, heads, dims}, {batch_stride, token_stride, head_stride, 1});
}

View Vectors::pages() const {
  const int64_t count = (batch - 1) * (batch_stride / token_stride) + tokens;
  return View(data, dl_type(type), {count, 1, heads, dims}, {token_stride, token_stride, head_stride, 1});
}

Vectors tokens_first(const Operand& operand, int64_t heads, int64_t part, int64_t parts) {
  int64_t width = 1;
  for (size_t i = 2; i < operand.shape.size(); i++) width *= operand.dim(i);
  const bool split = operand.shape.size() < 5 || (operand.dim(2) == heads && operand.dim(3) == parts);
  if (!split || width == 0 || width % (heads * parts) != 0) {
    refuse("a tensor has shape " + operand.text() + ", but must have " + std::to_string(heads) + " heads");
  }
  Vectors all;
  all.type = operand.type;
  all.batch = operand.dim(0);
  all.tokens = operand.dim(1);
  all.heads = heads;
  all.dims = width / (heads * parts);
  all.head_stride = all.dims * parts;
  all.token_stride = width;
  all.batch_stride = all.tokens * width;
  all.data = static_cast<char*>(const_cast<void*>(operand.data));
  all.data += part * all.dims * static_cast<int64_t>(element_bytes(all.type));
  return all;
}

Vectors heads_first(const Operand& operand) {
  Vectors all;
  all.data = static_cast<char*>(const_cast<void*>(operand.data));
  all.type = operand.type;
  all.batch = operand.dim(0);
  all.heads = operand.dim(1);
  all.tokens = operand.dim(2);
  all.dims = operand.dim(3);
  all.token_stride = all.dims;
  all.head_stride = all.tokens * all.dims;
  all.batch_stride = all.heads * all.head_stride;
  return all;
}

Vectors packed_like(const Vectors& vectors, void* data) {
  Vectors packed = vectors;
  packed.data = static_cast<char*>(data);
  packed.head_stride = packed.dims;
  packed.token_stride = packed.heads * packed.dims;
  packed.batch_stride = packed.tokens * packed.token_stride;
  return packed;
}

void copy(const OrtKernelContext* run, const Vectors& from, const void* bias, const Vectors& to) {
  const auto sum = from.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT ? add<float> : add<_Float16>;
  const int64_t bytes = from.dims * static_cast<int64_t>(element_bytes(from.type));
  const bool dense = bias == nullptr && from.token_stride == from.dims && to.token_stride == to.dims;
  parallel_for(run, from.batch * from.heads, [&](int64_t item) {
    const int64_t row = item / from.heads, head = item % from.heads;
    const int64_t joined = dense ? from.tokens : 1;  // tokens that lie side by side in both
    for (int64_t token = 0; token < from.tokens; token += joined) {
      if (bias != nullptr) {
        sum(from.at(row, token, head), static_cast<const char*>(bias) + head * bytes, from.dims,
            to.at(row, token, head));
      } else {
        std::memcpy(to.at(row, token, head), from.at(row, token, head), static_cast<size_t>(joined * bytes));
      }
    }
  });
}

}  // namespace kvc_ort

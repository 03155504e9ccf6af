#include "tensor/tensor_overlap.h"

#include <algorithm>
#include <cstdint>

#include "base/element_bytes.h"

namespace kvc {
namespace {

// Returns the bytes from the first element to the end of the last element, over the dims whose stride is below `limit`
// bytes.
int64_t extent_bytes(const TensorView& t, int64_t limit) noexcept {
  int64_t bytes = element_bytes(t.dtype);
  for (int32_t i = 0; i < t.rank; ++i) {
    const int64_t stride = t.strides[i] * element_bytes(t.dtype);
    if (stride < limit) bytes += (t.shape[i] - 1) * stride;
  }
  return bytes;
}

// Returns whether the tensor consists of columns of a table with rows of `pitch` bytes: each stride is a multiple of
// `pitch`, or it is smaller and the elements of its dim stay within a row.
bool divides(const TensorView& t, int64_t pitch) noexcept {
  for (int32_t i = 0; i < t.rank; ++i) {
    const int64_t stride = t.strides[i] * element_bytes(t.dtype);
    if (t.shape[i] > 1 && stride >= pitch && stride % pitch != 0) return false;
  }
  return extent_bytes(t, pitch) <= pitch;
}

// Returns whether both tensors consist of columns of a table with rows of `pitch` bytes, and have no column in common.
bool in_different_columns(const TensorView& a, const TensorView& b, int64_t pitch) noexcept {
  if (!divides(a, pitch) || !divides(b, pitch)) return false;
  const auto size = static_cast<uintptr_t>(pitch);
  const uintptr_t column_a = reinterpret_cast<uintptr_t>(a.data) % size;
  const uintptr_t column_b = reinterpret_cast<uintptr_t>(b.data) % size;
  const auto from_a_to_b = static_cast<int64_t>((column_b + size - column_a) % size);
  return from_a_to_b >= extent_bytes(a, pitch) && pitch - from_a_to_b >= extent_bytes(b, pitch);
}

bool separable(const TensorView& a, const TensorView& b, const TensorView& pitches) noexcept {
  for (int32_t i = 0; i < pitches.rank; ++i) {
    const int64_t pitch = pitches.strides[i] * element_bytes(pitches.dtype);
    if (pitches.shape[i] > 1 && pitch > 0 && in_different_columns(a, b, pitch)) return true;
  }
  return false;
}

}  // namespace

bool elements_overlap(const TensorView& a, const TensorView& b) noexcept {
  if (a.data == nullptr || b.data == nullptr) return false;
  if (a.data + extent_bytes(a, INT64_MAX) <= b.data || b.data + extent_bytes(b, INT64_MAX) <= a.data) return false;
  return !separable(a, b, a) && !separable(a, b, b);
}

Status check_overlaps(const NamedTensor* written, int num_written, const NamedTensor* read, int num_read) {
  const auto check = [](const NamedTensor& a, const NamedTensor& b) {
    if (a.tensor == nullptr || b.tensor == nullptr || !elements_overlap(*a.tensor, *b.tensor)) return Status();
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "%s is written and overlaps %s", a.name, b.name);
  };
  for (int i = 0; i < num_written; ++i) {
    for (int j = i + 1; j < num_written; ++j) KVC_TRY(check(written[i], written[j]));
    for (int j = 0; j < num_read; ++j) KVC_TRY(check(written[i], read[j]));
  }
  return Status();
}

TensorView view_of(const kvc_backend_tensor& rows, int64_t tokens, int64_t heads, int64_t dims) noexcept {
  TensorView view;
  view.data = static_cast<char*>(rows.data);
  view.dtype = rows.dtype;
  view.rank = 3;
  const int64_t shape[3] = {tokens, heads, dims}, strides[3] = {rows.token_stride, rows.head_stride, 1};
  std::copy_n(shape, 3, view.shape);
  std::copy_n(strides, 3, view.strides);
  return view;
}

}  // namespace kvc

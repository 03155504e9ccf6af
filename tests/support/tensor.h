// Tensors that are given to the library, and tensors that it returns.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "dtype.h"

namespace kvt {

// A host tensor that owns its bytes. `padding` elements follow each row of the second innermost dimension, and `offset`
// elements come before the data (byte_offset), so that strides and offsets matter.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType type, std::vector<int64_t> shape, int64_t padding = 0, int64_t offset = 0)
      : type_(type), shape_(std::move(shape)), offset_(offset) {
    strides_.resize(shape_.size());
    int64_t stride = 1;
    for (size_t i = shape_.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= shape_[i];
      if (i + 1 == shape_.size()) stride += padding;
      if (i + 2 == shape_.size()) stride += padding;
    }
    compact_ = padding == 0;
    bytes_.assign(static_cast<size_t>(stride + offset) * size_of(type) + 64, 0xA5);
  }

  DType type() const { return type_; }
  int64_t dim(int i) const { return shape_[i]; }
  const std::vector<int64_t> &shape() const { return shape_; }
  void *data() { return bytes_.data() + offset_ * size_of(type_); }
  const void *data() const { return bytes_.data() + offset_ * size_of(type_); }
  int64_t index(int64_t a, int64_t b, int64_t c) const { return a * strides_[0] + b * strides_[1] + c * strides_[2]; }
  int64_t index(int64_t a, int64_t b) const { return a * strides_[0] + b * strides_[1]; }
  float at(int64_t a, int64_t b, int64_t c) const { return load(type_, data(), index(a, b, c)); }
  float at(int64_t a, int64_t b) const { return load(type_, data(), index(a, b)); }
  void set(int64_t a, int64_t b, int64_t c, float x) { store(type_, data(), index(a, b, c), x); }
  void set(int64_t a, int64_t b, float x) { store(type_, data(), index(a, b), x); }
  std::vector<uint8_t> &bytes() { return bytes_; }
  const std::vector<uint8_t> &bytes() const { return bytes_; }

  // Strides are NULL if the tensor is compact and `null_strides` is set. Valid while the tensor lives at its address.
  const DLTensor *dl(bool null_strides = false) {
    dl_.data = bytes_.data();
    dl_.device = test_device();
    dl_.ndim = static_cast<int32_t>(shape_.size());
    dl_.dtype = dl_type(type_);
    dl_.shape = shape_.data();
    dl_.strides = compact_ && null_strides ? nullptr : strides_.data();
    dl_.byte_offset = static_cast<uint64_t>(offset_ * size_of(type_));
    return &dl_;
  }

 private:
  DType type_ = DType::kF32;
  std::vector<int64_t> shape_, strides_;
  int64_t offset_ = 0;
  bool compact_ = true;
  std::vector<uint8_t> bytes_;
  DLTensor dl_{};
};

// A tensor that the library returned. Its own deleter releases it.
struct ManagedDeleter {
  void operator()(DLManagedTensorVersioned *tensor) const {
    if (tensor && tensor->deleter) tensor->deleter(tensor);
  }
};
using Managed = std::unique_ptr<DLManagedTensorVersioned, ManagedDeleter>;

// Not for quantised elements, which quantise.h reads.
inline DType dtype_of(DLDataType type) {
  if (type.code == kDLBfloat) return DType::kBF16;
  return type.bits == 32 ? DType::kF32 : DType::kF16;
}
inline float at(const DLTensor &t, std::initializer_list<int64_t> indices) {
  int64_t element = 0;
  int i = 0;
  for (int64_t x : indices) element += x * t.strides[i++];
  return load(dtype_of(t.dtype), static_cast<const char *>(t.data) + t.byte_offset, element);
}
inline void set(const DLTensor &t, std::initializer_list<int64_t> indices, float value) {
  int64_t element = 0;
  int i = 0;
  for (int64_t x : indices) element += x * t.strides[i++];
  store(dtype_of(t.dtype), static_cast<char *>(t.data) + t.byte_offset, element, value);
}

}  // namespace kvt

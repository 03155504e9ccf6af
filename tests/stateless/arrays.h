// Tensors of any rank, dtype and memory order, for calls on arrays of the caller. Also index tensors.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "dtype.h"
#include "quantise.h"

namespace kvt {

using Index = std::vector<int64_t>;

class Array {
 public:
  Array() = default;
  // order: dims from the outermost in memory to the innermost (empty: in their own order); padding: elements after each
  // innermost row. Elements begin as NaN, so an element that was never set is noticed.
  Array(DType dtype, Index dims, std::vector<int> order = {}, int64_t padding = 0)
      : type(dtype), shape(std::move(dims)) {
    if (order.empty()) {
      order.resize(shape.size());
      std::iota(order.begin(), order.end(), 0);
    }
    strides.resize(shape.size());
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const auto dim = static_cast<size_t>(order[i]);
      strides[dim] = stride;
      stride = stride * shape[dim] + (i + 1 == order.size() ? padding : 0);
    }
    bytes.assign(static_cast<size_t>(stride) * static_cast<size_t>(size_of(type)), 0xFF);  // NaN in every type
  }

  int64_t at(const Index &index) const {
    int64_t element = begin;
    for (size_t i = 0; i < index.size(); i++) element += index[i] * strides[i];
    return element;
  }
  float get(const Index &index) const {
    const int64_t i = at(index);
    return is_quantised(type) ? static_cast<float>(byte_value(type, storage()[static_cast<size_t>(i)]))
                              : load(type, storage().data(), i);
  }
  // Rounds a number to the type. Float8 saturates.
  void set(const Index &index, float x) {
    const int64_t i = at(index);
    if (is_quantised(type)) {
      storage()[static_cast<size_t>(i)] = byte_of(x);
    } else {
      store(type, storage().data(), i, x);
    }
  }
  // The value of x after it was stored in an element.
  float rounded(float x) const {
    return is_quantised(type) ? static_cast<float>(nearest_value(type, static_cast<double>(x))) : round_to(type, x);
  }

  const DLTensor *dl() {
    tensor_ = {storage().data(), test_device(),  static_cast<int32_t>(shape.size()),          dl_type(type),
               shape.data(),     strides.data(), static_cast<uint64_t>(begin * size_of(type))};
    return &tensor_;
  }
  void fill_random(std::mt19937 *random, float spread = 1.0f) {
    std::normal_distribution<float> normal(0.0f, spread);
    Index index(shape.size(), 0);
    for (int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); n-- > 0;) {
      set(index, normal(*random));
      for (size_t i = shape.size(); i-- > 0 && ++index[i] == shape[i];) index[i] = 0;
    }
  }
  // Elements [first, first + count) of the innermost dim, in the same memory.
  Array columns(int64_t first, int64_t count) {
    Array part;
    part.type = type;
    part.shape = shape;
    part.shape.back() = count;
    part.strides = strides;
    part.begin = begin + first;
    part.owner_ = owner_ ? owner_ : this;
    return part;
  }

  std::vector<uint8_t> &storage() { return owner_ ? owner_->bytes : bytes; }
  const std::vector<uint8_t> &storage() const { return owner_ ? owner_->bytes : bytes; }

  DType type = DType::kF32;
  Index shape, strides;
  int64_t begin = 0;
  std::vector<uint8_t> bytes;  // of an array that owns its memory

 private:
  uint8_t byte_of(float x) const {
    if (std::isnan(x)) return 0xFF;
    const double wanted = nearest_value(type, static_cast<double>(x));
    int low = 0, high = 0x7f;  // bytes of magnitudes are ordered as their values
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (byte_value(type, static_cast<uint8_t>(middle)) <= std::fabs(wanted) ? low : high) = middle;
    }
    return static_cast<uint8_t>(low | (std::signbit(wanted) ? 0x80 : 0));
  }
  Array *owner_ = nullptr;
  DLTensor tensor_{};
};

// int32 (or int64) values as a tensor.
template <class T = int32_t>
struct Indexes {
  Indexes() = default;
  explicit Indexes(std::vector<T> v, Index dims = {}) : values(std::move(v)), shape(std::move(dims)) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  }
  const DLTensor *dl() {
    tensor_ = {values.data(),
               index_test_device(),
               static_cast<int32_t>(shape.size()),
               {kDLInt, 8 * sizeof(T), 1},
               shape.data(),
               nullptr,
               0};
    return &tensor_;
  }
  std::vector<T> values;
  Index shape;

 private:
  DLTensor tensor_{};
};

}  // namespace kvt

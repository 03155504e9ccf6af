// A caller's index tensor, [n] int32 or int64 by any stride, as numbers. Values are a caller's: check each before use.
#pragma once

#include <cinttypes>

#include "base/status.h"
#include "cache/tensor_check.h"

namespace kvc {

class IndexTensor {
 public:
  // Reads `tensor` unless it is NULL: int32, with `wide` also int64. n: -1 = its own size. scalar: rank 0 is one value
  // for all.
  static Status read(const DLTensor* tensor, const char* name, int64_t n, bool wide, bool scalar, DLDevice device,
                     IndexTensor* out);

  bool given() const noexcept { return name_ != nullptr; }
  const char* name() const noexcept { return name_; }
  int64_t size() const noexcept { return size_; }
  int64_t operator[](int64_t i) const noexcept {
    const int64_t at = i * stride_;
    return wide_ ? static_cast<const int64_t*>(data_)[at] : static_cast<const int32_t*>(data_)[at];
  }
  const TensorView* tensor() const noexcept { return given() ? &view_ : nullptr; }

 private:
  const char* name_ = nullptr;
  const void* data_ = nullptr;
  int64_t stride_ = 0, size_ = 0;
  bool wide_ = false;
  TensorView view_;
};

}  // namespace kvc

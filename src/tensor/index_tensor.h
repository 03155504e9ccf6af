// A caller's index tensor, [n] int32 or int64 by any stride, as numbers. Values are a caller's: check each before use.
// It may be on the context's device, where the host does not read: then kernels do (`on_device`).
#pragma once

#include <cinttypes>

#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/host_reads.h"
#include "tensor/tensor_check.h"

namespace kvc {

class IndexTensor {
 public:
  // Reads `tensor` unless it is NULL: int32, with `wide` also int64. n: -1 = its own size. scalar: rank 0 is one value
  // for all.
  static Status read(const DLTensor* tensor, const char* name, int64_t n, bool wide, bool scalar, DLDevice device,
                     IndexTensor* out);

  bool given() const noexcept { return name_ != nullptr; }
  bool on_host() const noexcept { return on_host_; }
  // One value for all, on the host.
  bool constant() const noexcept { return on_host_ && view_.rank == 0; }
  // As kernels read it. Not given, or a constant: without data.
  kvc_backend_indexes on_device() const noexcept {
    if (!given()) return {};
    if (constant()) return {nullptr, 0, static_cast<int32_t>((*this)[0]), 0};
    return {data_, stride_, 0, wide_ ? 1u : 0u};
  }
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
  bool wide_ = false, on_host_ = true;
  TensorView view_;
};

// The device on which an index tensor of a call must be: the host, if that reads it, else `device`.
DLDevice index_device(const DLTensor& tensor, DLDevice device) noexcept;

}  // namespace kvc

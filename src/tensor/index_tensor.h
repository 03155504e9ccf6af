// A caller's index arrays: IndexTensor, one number a row, by any stride, and IndexTable, rows of numbers. Elements are
// int32 or int64. Both check the tensor. The values are the caller's: another thread may write them during the call, so
// each value is read once, and what was read is checked (`copy`).
//
// An array may be on the context's device. The host does not read it there: kernels do (`on_device`).
//
// Thread safety: none; of one call. Ownership: borrows the tensor's data.
#pragma once

#include <cinttypes>

#include "base/read_once.h"
#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/host_reads.h"
#include "tensor/tensor_check.h"

namespace kvc {

struct IndexSpec {
  const char* name;     // for messages
  DLDevice device;      // of the context; the host's memory is always allowed
  int64_t size = -1;    // elements that are needed; -1: all that there are
  bool scalar = false;  // a tensor of rank 0 is one value for all `size` elements
  bool exact = false;   // stride 1 and no element more than `size` are required
};

class IndexTensor {
 public:
  // Reads shape and type of `tensor`. NULL is an array that is not given.
  static Status read(const DLTensor* tensor, const IndexSpec& spec, IndexTensor* out);

  bool given() const noexcept { return name_ != nullptr; }
  bool on_host() const noexcept { return on_host_; }
  // One value for all rows, which the host reads.
  bool constant() const noexcept { return on_host_ && view_.rank == 0; }
  // As kernels read it. An array that is not given, or a constant, has no data.
  kvc_backend_indexes on_device() const noexcept;
  const char* name() const noexcept { return name_; }
  int64_t size() const noexcept { return size_; }
  int64_t operator[](int64_t i) const noexcept {
    const int64_t at = i * stride_;
    return wide_ ? read_once(static_cast<const int64_t*>(data_) + at)
                 : read_once(static_cast<const int32_t*>(data_) + at);
  }
  // Reads each element once, into out[size()]. A value that int32 does not hold becomes the nearest one that it holds.
  // Returns whether all values are in least..most, which int32 holds.
  bool copy(int64_t least, int64_t most, int32_t* out) const noexcept;
  const TensorView* tensor() const noexcept { return given() ? &view_ : nullptr; }

 private:
  const char* name_ = nullptr;
  const void* data_ = nullptr;
  int64_t stride_ = 0, size_ = 0;
  bool wide_ = false, on_host_ = true;
  TensorView view_;
};

// [rows, columns]; the innermost stride is 1.
class IndexTable {
 public:
  // letters: of the shape, for messages. wide: int64 is allowed too.
  static Status read(const DLTensor* tensor, const IndexSpec& spec, const char* letters, bool wide, IndexTable* out);

  bool given() const noexcept { return view_.rank != 0; }
  bool on_host() const noexcept { return on_host_; }
  bool wide() const noexcept { return wide_; }
  int64_t num_rows() const noexcept { return view_.shape[0]; }
  int64_t num_columns() const noexcept { return view_.shape[1]; }
  int64_t row_stride() const noexcept { return view_.strides[0]; }
  const void* data() const noexcept { return view_.data; }
  // Of a table that is not wide.
  const int32_t* narrow() const noexcept { return reinterpret_cast<const int32_t*>(view_.data); }
  // As IndexTensor::copy, of columns [begin, end) of a row, to the same places of `out`.
  bool copy_columns(int64_t row, int64_t begin, int64_t end, int64_t most, int32_t* out) const noexcept;
  const TensorView* tensor() const noexcept { return given() ? &view_ : nullptr; }

 private:
  TensorView view_;
  bool wide_ = false, on_host_ = true;
};

// The memory in which an index tensor must be: the host's if the host reads the tensor, else that of `device`.
DLDevice index_device(const DLTensor& tensor, DLDevice device) noexcept;

}  // namespace kvc

// Describes index arrays of a caller. An IndexTensor is an array of numbers with any stride. An IndexTable is a table
// of numbers. Elements are int32 or int64. `read` checks the tensor. Another thread may write the values during the
// call. So `copy` reads each value once, and checks the value that it has read.
//
// An array may be on the context's device. Then the host does not read the array, but kernels do (`on_device`).
//
// Thread safety: none; an object belongs to one call. Ownership: an object borrows the tensor's data.
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
  DLDevice device;      // device of the context; host memory is always allowed
  int64_t size = -1;    // elements that are needed; -1 = all elements of the tensor
  bool scalar = false;  // a tensor of rank 0 is allowed: one value for all `size` elements
  bool exact = false;   // requires stride 1 and exactly `size` elements
};

class IndexTensor {
 public:
  // Checks `tensor`, and keeps its shape and type. If `tensor` is NULL, the array is not given.
  static Status read(const DLTensor* tensor, const IndexSpec& spec, IndexTensor* out);

  bool given() const noexcept { return name_ != nullptr; }
  bool on_host() const noexcept { return on_host_; }
  // Whether the array is one value for all rows, and the host can read it.
  bool constant() const noexcept { return on_host_ && view_.rank == 0; }
  // Returns the array in the form for kernels, without data if the array is not given or is constant.
  kvc_backend_indexes on_device() const noexcept;
  const char* name() const noexcept { return name_; }
  int64_t size() const noexcept { return size_; }
  int64_t operator[](int64_t i) const noexcept {
    const int64_t at = i * stride_;
    return wide_ ? read_once(static_cast<const int64_t*>(data_) + at)
                 : read_once(static_cast<const int32_t*>(data_) + at);
  }
  // Reads each element once, into out[size()]. A value beyond the range of int32 becomes the nearest int32. Returns
  // whether all values are in least..most. Both bounds are in the range of int32.
  bool copy(int64_t least, int64_t most, int32_t* out) const noexcept;
  const TensorView* tensor() const noexcept { return given() ? &view_ : nullptr; }

 private:
  const char* name_ = nullptr;
  const void* data_ = nullptr;
  int64_t stride_ = 0, size_ = 0;
  bool wide_ = false, on_host_ = true;
  TensorView view_;
};

// A table [rows, columns] with innermost stride 1.
class IndexTable {
 public:
  // letters: the shape as text, for messages. wide: whether int64 is also accepted.
  static Status read(const DLTensor* tensor, const IndexSpec& spec, const char* letters, bool wide, IndexTable* out);

  bool given() const noexcept { return view_.rank != 0; }
  bool on_host() const noexcept { return on_host_; }
  bool wide() const noexcept { return wide_; }
  int64_t num_rows() const noexcept { return view_.shape[0]; }
  int64_t num_columns() const noexcept { return view_.shape[1]; }
  int64_t row_stride() const noexcept { return view_.strides[0]; }
  const void* data() const noexcept { return view_.data; }
  // Returns the data of a table of int32.
  const int32_t* narrow() const noexcept { return reinterpret_cast<const int32_t*>(view_.data); }
  // Copies columns [begin, end) of a row to the same places of `out`, and checks them like IndexTensor::copy.
  bool copy_columns(int64_t row, int64_t begin, int64_t end, int64_t most, int32_t* out) const noexcept;
  const TensorView* tensor() const noexcept { return given() ? &view_ : nullptr; }

 private:
  TensorView view_;
  bool wide_ = false, on_host_ = true;
};

// Returns the device on which an index tensor must be: the CPU if the host can read the tensor, else `device`.
DLDevice index_device(const DLTensor& tensor, DLDevice device) noexcept;

}  // namespace kvc

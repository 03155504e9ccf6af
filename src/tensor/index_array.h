// A server's arrays of indices and lengths, as a plan reads them: int32 or int64, on the host.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache.h"

namespace kvc {

// [size], compact.
class IndexArray {
 public:
  // wanted_size -1: any.
  static Status read(const DLTensor* tensor, const char* name, int64_t wanted_size, IndexArray* out);

  int64_t size() const noexcept { return size_; }
  int64_t operator[](int64_t i) const noexcept {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }
  // Copies all to `out`, 0 in place of those that are not in least..most; returns whether all are. most is below 2^31.
  bool copy(int64_t least, int64_t most, int32_t* out) const noexcept;

 private:
  const void* data_ = nullptr;
  int64_t size_ = 0;
  bool wide_ = false;
};

// [rows, columns] int32, innermost stride 1.
struct IndexTable {
  const int32_t* data = nullptr;
  int64_t num_rows = 0, num_columns = 0, row_stride = 0;

  static Status read(const DLTensor* tensor, const char* name, IndexTable* out);
};

}  // namespace kvc

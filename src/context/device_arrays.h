// DeviceArrays: copies of host arrays in one block of device memory, sent in one upload. If the device is the host,
// this class is not used, because the arrays are read in place.
//
// Thread safety: none. Ownership: it owns the block and the bytes to upload, and borrows the arrays from add to upload.
// Invariants
//   1. If clear and the same calls of add are repeated, the copies have the same addresses, unless the block grew in
//      between.
//   2. Such a repetition allocates nothing.
//   3. Addresses are aligned to kAlignment bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "context/context.h"

namespace kvc {

class DeviceArrays {
 public:
  static constexpr int64_t kAlignment = 256;  // bytes

  // Removes all arrays. The block stays allocated.
  void clear() noexcept;
  // Adds an array, unless it was added before. Ignores a tensor of rank 0. Throws std::bad_alloc.
  void add(const DLTensor& array);
  // Makes the block large enough for the arrays. If it grows, its contents are lost.
  Status reserve(const std::shared_ptr<Context>& context);
  // Calls reserve, and then copies all arrays to the block in the order of the stream.
  Status upload(const std::shared_ptr<Context>& context, void* stream);
  // point makes a tensor refer to the copy of its array. copy_of returns the address of an array's copy. The address is
  // null if the array was not added.
  void point(DLTensor* array) const noexcept;
  template <class T>
  T* copy_of(const T* array) const noexcept {
    return static_cast<T*>(find(array));
  }

 private:
  struct Piece {
    const void* source;
    int64_t bytes, offset;
  };
  std::vector<Piece>::const_iterator lower_bound(const void* array) const noexcept;
  void* find(const void* array) const noexcept;

  std::vector<Piece> pieces_;  // sorted by source
  std::vector<unsigned char> staging_;
  std::shared_ptr<DeviceMemory> memory_;
  int64_t bytes_ = 0;
};

// Calls visit(DLTensor*) for every tensor of `tables` that is not of rank 0.
template <class Visit>
void for_each_tensor(kvc_tables* tables, Visit visit) {
  for (DLTensor* tensor :
       {&tables->generation_word, &tables->block_table, &tables->cache_seqlens, &tables->cu_seqlens_q,
        &tables->cu_seqlens_k, &tables->indptr, &tables->indices, &tables->last_page_len, &tables->key_starts,
        &tables->leftpad, &tables->batch_rows, &tables->sink_tokens, &tables->hole_tokens, &tables->slot_mapping,
        &tables->positions, &tables->last_rows}) {
    if (tensor->ndim > 0) visit(tensor);
  }
}

}  // namespace kvc

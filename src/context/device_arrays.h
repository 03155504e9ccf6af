// DeviceArrays: copies of arrays of the host where a device's kernels read them, in one block of its memory, that go up
// in one upload. On a device that is the host there are none: the arrays are read where they are.
//
// Thread safety: none. Ownership: of the block and of what goes up; borrows the arrays from add to upload.
// Invariants
//   1. Equal calls of clear and add give equal addresses, unless there is more than ever before.
//   2. They allocate nothing then.
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
  static constexpr int64_t kAlignment = 256;

  // Begins anew: no array.
  void clear() noexcept;
  // An array; one that is there already stays where it is. A tensor of rank 0 is none. Throws std::bad_alloc.
  void add(const DLTensor& array);
  // The block for what was added; what was in it does not survive if it grows.
  Status reserve(const std::shared_ptr<Context>& context);
  // The same, and then copies all arrays, in the stream's order.
  Status upload(const std::shared_ptr<Context>& context, void* stream);
  // Makes a tensor over an array, or a pointer to it, one over its copy.
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

  std::vector<Piece> pieces_;  // by source
  std::vector<unsigned char> staging_;
  std::shared_ptr<DeviceMemory> memory_;
  int64_t bytes_ = 0;
};

// Calls visit(DLTensor*) for every tensor of `tables`.
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

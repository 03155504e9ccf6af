// Lists of keys that a caller gives with an attend: the shapes, and the entries, each of which must be in range. A
// thread that writes the entries later can change results, but not which memory is read: kernels check them again
// (kvc_backend_lists).
//
// Pure functions; any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/tensor_check.h"

namespace kvc {

// UNSUPPORTED, if the backend does not attend over lists.
Status check_attends_lists(const kvc_backend& backend);

// Reads the tensor of `spec`, whose last dims are heads (1, or kv_heads) and entries. spec.takes is set here. *out is
// lists of blocks of `block` tokens; physical is 0.
Status read_key_lists(const DLTensor* tensor, TensorSpec spec, int64_t kv_heads, int32_t block, TensorView* view,
                      kvc_backend_lists* out, const char* block_name = "index_block");

// An entry that is out of range.
struct BadEntry {
  int64_t head, place;  // in the lists of the token
  int32_t value;
};
// Whether an entry of a token is not below `limit`. kv_heads: of the layer.
bool find_entry_beyond(const kvc_backend_lists& lists, int64_t row, int64_t token, int64_t kv_heads, int64_t limit,
                       BadEntry* bad) noexcept;

// An entry of a step's list for which a row has no token: the error, or OK. name: of the tensor. heads: of its lists.
Status check_entries(const kvc_backend_lists& lists, const kvc_backend_rows& rows, const char* name, int64_t heads);

}  // namespace kvc

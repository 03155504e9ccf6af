// Checks the lists of keys that a caller gives for attention: their shapes, and that each entry is in range. Kernels
// check the entries again (kvc_backend_lists). So if another thread writes an entry after the check, results may
// change, but kernels read no memory out of range.
//
// The functions are pure, and any thread may call them.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kvcache_backend.h"
#include "tensor/tensor_check.h"

namespace kvc {

// Fails with UNSUPPORTED if the backend does not attend over lists.
Status check_attends_lists(const kvc_backend& backend);

// Reads a tensor that must match `spec`. Its last two dims are heads (1 or kv_heads) and entries. The function itself
// sets spec.takes and spec.dtypes. *out then describes lists whose entries are blocks of `block` tokens, and
// out->physical is 0.
Status read_key_lists(const DLTensor* tensor, TensorSpec spec, int64_t kv_heads, int32_t block, TensorView* view,
                      kvc_backend_lists* out, const char* block_name = "index_block");

// An entry that is out of range.
struct BadEntry {
  int64_t head, place;  // indices in the lists of the token
  int32_t value;
};
// Returns whether a list of a token has an entry that is `limit` or more. If so, *bad describes such an entry.
// kv_heads: the number of kv heads of the layer.
bool find_entry_beyond(const kvc_backend_lists& lists, int64_t row, int64_t token, int64_t kv_heads, int64_t limit,
                       BadEntry* bad) noexcept;

// Fails with OUT_OF_RANGE if an entry of a list names a block that has no token of its row. name: the tensor's name,
// for the message. heads: the number of heads in the lists.
Status check_entries(const kvc_backend_lists& lists, const kvc_backend_rows& rows, const char* name, int64_t heads);

}  // namespace kvc

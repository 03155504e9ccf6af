#include "tensor/key_lists.h"

#include <algorithm>
#include <cinttypes>

#include "base/checked.h"

namespace kvc {
namespace {

bool is_int32_dtype(DLDataType dtype) { return same_dtype(dtype, {kDLInt, 32, 1}); }

}  // namespace

Status check_attends_lists(const kvc_backend& backend) {
  if ((backend.features & KVC_BACKEND_LISTS) != 0) return Status();
  return Status::error(KVC_ERROR_UNSUPPORTED, "indices: the %s backend does not attend over lists", backend.name);
}

Status read_key_lists(const DLTensor* tensor, TensorSpec spec, int64_t kv_heads, int32_t block, TensorView* view,
                      kvc_backend_lists* out, const char* block_name) {
  spec.takes = is_int32_dtype;
  spec.dtypes = "int32";
  KVC_TRY(check_tensor(tensor, spec, view));
  const int64_t heads = view->shape[view->rank - 2], entries = view->shape[view->rank - 1];
  if (heads != 1 && heads != kv_heads) {
    return Status::error(KVC_ERROR_SHAPE, "%s has lists for %" PRId64 " heads, not for 1 or %" PRId64, spec.name, heads,
                         kv_heads);
  }
  if (block < 1 || block > KVC_MAX_LISTED_KEYS) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE, "%s %d is not in 1..%d", block_name, block, KVC_MAX_LISTED_KEYS);
  }
  if (entries > KVC_MAX_LISTED_KEYS / block) {
    return Status::error(KVC_ERROR_OUT_OF_RANGE,
                         "%s has lists of %" PRId64 " blocks of %d tokens, and a list has at most %d tokens", spec.name,
                         entries, block, KVC_MAX_LISTED_KEYS);
  }
  *out = {};
  out->block_tokens = block;
  if (entries == 0) return Status();  // the tensor may have no data, so nothing is added to its address
  out->entries = reinterpret_cast<const int32_t*>(view->data);
  out->token_stride = view->strides[view->rank - 3];
  out->head_stride = heads == 1 ? 0 : view->strides[view->rank - 2];
  out->row_stride = view->rank == 4 ? view->strides[0] - view->shape[1] * view->strides[1] : 0;
  out->num_entries = static_cast<int32_t>(entries);
  return Status();
}

bool find_entry_beyond(const kvc_backend_lists& lists, int64_t row, int64_t token, int64_t kv_heads, int64_t limit,
                       BadEntry* bad) noexcept {
  for (int64_t head = 0; head < (lists.head_stride == 0 ? 1 : kv_heads); ++head) {
    const int32_t* const list =
        lists.entries + row * lists.row_stride + token * lists.token_stride + head * lists.head_stride;
    int32_t largest = -1;
    for (int32_t i = 0; i < lists.num_entries; ++i) largest = std::max(largest, list[i]);
    if (largest < limit) continue;
    // Finds the first bad entry. If another thread has overwritten the bad entries in the meantime, the result is
    // `largest` at place 0.
    *bad = {head, 0, largest};
    for (int64_t i = lists.num_entries - 1; i >= 0; --i) {
      if (const int32_t value = list[i]; value >= limit) *bad = {head, i, value};
    }
    return true;
  }
  return false;
}

Status check_entries(const kvc_backend_lists& lists, const kvc_backend_rows& rows, const char* name, int64_t heads) {
  for (int32_t row = 0; row < rows.num_rows; ++row) {
    const int32_t begin = rows.token_begin[row], length = rows.kv_lengths[row];
    if (length < 0) continue;
    const int64_t limit = ceil_div(length, lists.block_tokens);
    BadEntry bad;
    for (int32_t token = begin; token < rows.token_begin[row + 1]; ++token) {
      if (!find_entry_beyond(lists, 0, token, heads, limit, &bad)) continue;
      return Status::error(KVC_ERROR_OUT_OF_RANGE,
                           "%s[%d, %" PRId64 ", %" PRId64
                           "] is %d, for query %d of row %d, whose %d tokens have %" PRId64 " blocks of %d",
                           name, token, bad.head, bad.place, bad.value, token - begin, row, length, limit,
                           lists.block_tokens)
          .at(row);
    }
  }
  return Status();
}

}  // namespace kvc

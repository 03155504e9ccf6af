#include "tier/tier_items.h"

#include <cinttypes>

#include "base/checked.h"

namespace kvc {
namespace {

Status check_buffers(const kvc_tier_item& item) {
  if (item.num_buffers < 0) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "num_buffers is %" PRId32, item.num_buffers);
  }
  if (item.num_buffers > 0 && !item.buffers) return Status::error(KVC_ERROR_NULL_ARGUMENT, "buffers is NULL");
  int64_t sum = 0;
  for (int32_t i = 0; i < item.num_buffers; ++i) {
    const kvc_tier_buffer& buffer = item.buffers[i];
    if (buffer.bytes < 0 || !checked_add(sum, buffer.bytes, &sum)) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "buffer %" PRId32 " has %" PRId64 " bytes", i, buffer.bytes);
    }
    if (buffer.bytes > 0 && !buffer.data) {
      return Status::error(KVC_ERROR_NULL_ARGUMENT, "buffer %" PRId32 " has %" PRId64 " bytes at NULL", i,
                           buffer.bytes);
    }
  }
  if (sum != item.bytes) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "bytes is %" PRId64 ", and its buffers have %" PRId64, item.bytes,
                         sum);
  }
  return Status();
}

}  // namespace

Status check_tier_items(TierWork work, int64_t n, const kvc_tier_item* items, const TierLimits& limits) {
  if (n < 1) return Status::error(KVC_ERROR_INVALID_ARGUMENT, "a job of %" PRId64 " items", n);
  if (n > limits.max_job_items) {
    return Status::error(KVC_ERROR_BATCH_TOO_LARGE, "a job of %" PRId64 " items; the tier takes %" PRId64, n,
                         limits.max_job_items)
        .missing(n, limits.max_job_items);
  }
  if (!items) return Status::error(KVC_ERROR_NULL_ARGUMENT, "items is NULL");
  for (int64_t i = 0; i < n; ++i) {
    if ((items[i].flags & ~limits.item_flags) != 0) {
      return Status::error(KVC_ERROR_UNSUPPORTED, "item %" PRId64 ": flags 0x%x has unknown bits", i, items[i].flags)
          .at(i);
    }
    if (work == TierWork::kRemove) continue;
    if (Status status = check_buffers(items[i]); !status.ok()) {
      return Status::error(status.code(), "item %" PRId64 ": %s", i, status.message()).at(i);
    }
    if (items[i].bytes > limits.max_object_bytes) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT, "item %" PRId64 ": %" PRId64 " bytes; the tier takes %" PRId64,
                           i, items[i].bytes, limits.max_object_bytes)
          .at(i);
    }
  }
  return Status();
}

}  // namespace kvc

// A cache without storage (KVC_STORAGE_NONE): copies that it queues for its caller, and calls that it refuses.
#include <cinttypes>

#include "cache/cache.h"

namespace kvc {

Status Cache::take_copies(std::span<kvc_copy> out, int64_t* count) {
  MutexLock lock(mutex_);
  *count = copy_queue_.size();
  if (out.empty()) return Status();
  if (*count > static_cast<int64_t>(out.size())) {
    return Status::error(KVC_ERROR_BUFFER_TOO_SMALL, "%" PRId64 " copies do not fit in a capacity of %zu", *count,
                         out.size())
        .missing(*count, static_cast<int64_t>(out.size()));
  }
  kvc_copy* next = out.data();
  for (const SlotCopy& copy : copy_queue_.copies()) *next++ = {copy.source, copy.target, copy.group, copy.tokens};
  copy_queue_.clear();
  return Status();
}

Status Cache::check_copies_taken() const {
  if (copy_queue_.empty()) return Status();
  return Status::error(KVC_ERROR_ORDER, "%" PRId64 " copies wait: make them first (kvc_cache_take_copies)",
                       copy_queue_.size());
}

// Makes room in the queue for up to `more` copies of a fork, a commit or an attach.
Status Cache::make_room_for_copies(int64_t more) {
  if (!geometry_.tables_only) return Status();
  const int64_t most = geometry_.limits.rows * num_groups();
  if (copy_queue_.size() >= most) {
    return Status::error(KVC_ERROR_ORDER,
                         "%" PRId64 " copies wait, and a call adds to fewer than %" PRId64
                         " (max_sequences * num_groups): make them first (kvc_cache_take_copies)",
                         copy_queue_.size(), most);
  }
  copy_queue_.reserve(more);
  return Status();
}

}  // namespace kvc

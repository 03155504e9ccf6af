#include "tier/host_store.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <new>
#include <utility>

#include "base/steady_clock.h"
#include "system/mapped_memory.h"

namespace kvc {
Status HostStore::open(int64_t capacity_bytes) {
  const int64_t blocks = capacity_bytes / kBlockBytes;
  const auto bytes = static_cast<size_t>(blocks * kBlockBytes);
  void* memory = map_memory(bytes);
  if (memory == nullptr) {
    return Status::error(KVC_ERROR_OUT_OF_MEMORY, "a host tier of %" PRId64 " bytes: %s", capacity_bytes,
                         std::strerror(errno));
  }
  memory_ = static_cast<uint8_t*>(memory);
  num_blocks_ = blocks;
  next_ = LazyArray<int32_t>(blocks);
  MutexLock lock(mutex_);
  num_free_ = blocks;
  return Status();
}

HostStore::~HostStore() {
  if (memory_ != nullptr) unmap_memory(memory_, static_cast<size_t>(num_blocks_ * kBlockBytes));
}

void HostStore::lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found) noexcept {
  MutexLock lock(mutex_);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = index_.find(keys[i]);
    found[i] =
        at == index_.end() ? kvc_tier_found{KVC_TIER_MISS, 0, 0} : kvc_tier_found{KVC_TIER_HIT, 0, at->second->bytes};
    counts_.hits += at != index_.end();
  }
  counts_.lookups += n;
}

int32_t HostStore::perform(TierWork work, const kvc_tier_item& item) {
  int32_t result = KVC_TIER_MISS;
  if (work == TierWork::kStore) {
    result = store(item);
  } else if (work == TierWork::kLoad) {
    result = load(item);
  } else {
    MutexLock lock(mutex_);
    if (const auto at = index_.find(item.key); at != index_.end()) {
      drop(at->second);
      result = KVC_TIER_OK;
    }
  }
  MutexLock lock(mutex_);
  if (result == KVC_TIER_MISS) ++counts_.misses;
  if (result != KVC_TIER_OK) return result;
  ++(work == TierWork::kLoad ? counts_.loads : work == TierWork::kStore ? counts_.stores : counts_.removes);
  return result;
}

int32_t HostStore::store(const kvc_tier_item& item) {
  Objects made(1);  // may throw, so it comes before any change
  made.front().key = item.key;
  made.front().bytes = item.bytes;
  made.front().kept = (item.flags & KVC_TIER_ITEM_KEEP) != 0;
  TransferMeter::Item transfer;
  {
    MutexLock lock(mutex_);
    if (!take_blocks(blocks_of(item.bytes), &made.front().first)) return KVC_TIER_RETRY;
    transfer = store_meter_.begin(steady_ns());
  }
  copy(item, made.front().first, true);
  MutexLock lock(mutex_);
  store_meter_.end(transfer, steady_ns(), item.bytes);
  counts_.written_bytes += item.bytes;
  try {
    const auto [at, is_new] = index_.try_emplace(item.key, made.begin());
    if (!is_new) retire(std::exchange(at->second, made.begin()));
  } catch (...) {
    free_blocks(made.front().first);
    throw;
  }
  if (made.front().kept) kept_blocks_ += blocks_of(item.bytes);
  Objects& list = list_of(made.front());
  list.splice(list.end(), made);
  return KVC_TIER_OK;
}

int32_t HostStore::load(const kvc_tier_item& item) {
  Objects::iterator object;
  TransferMeter::Item transfer;
  {
    MutexLock lock(mutex_);
    const auto at = index_.find(item.key);
    if (at == index_.end() || at->second->bytes != item.bytes) return KVC_TIER_MISS;
    object = at->second;
    ++object->loads;
    Objects& list = list_of(*object);
    list.splice(list.end(), list, object);
    transfer = load_meter_.begin(steady_ns());
  }
  copy(item, object->first, false);
  MutexLock lock(mutex_);
  load_meter_.end(transfer, steady_ns(), item.bytes);
  counts_.loaded_bytes += item.bytes;
  if (--object->loads == 0 && object->dropped) {
    free_blocks(object->first);
    dropped_.erase(object);
  }
  return KVC_TIER_OK;
}

// Evicts objects until `count` blocks are free, and takes these blocks. Kept objects and objects that are being loaded
// are not evicted. If the other objects have too few blocks, nothing is evicted.
bool HostStore::take_blocks(int64_t count, int32_t* first) noexcept {
  int64_t free = num_free_;  // and blocks of objects before `end` that can be evicted
  auto end = objects_.begin();
  for (; free < count && end != objects_.end(); ++end) {
    if (end->loads == 0) free += blocks_of(end->bytes);
  }
  if (free < count) return false;
  for (auto at = objects_.begin(); at != end;) {
    const auto object = at++;
    if (object->loads > 0) continue;
    drop(object);
    ++counts_.evictions;
  }
  num_free_ -= count;
  for (; count > 0; --count) {
    const int32_t block = free_ >= 0 ? free_ : fresh_++;
    if (block == free_) free_ = next_[block];
    next_[block] = *first;
    *first = block;
  }
  return true;
}

void HostStore::free_blocks(int32_t first) noexcept {
  while (first >= 0) {
    const int32_t after = next_[first];
    next_[first] = free_;
    free_ = first;
    ++num_free_;
    first = after;
  }
}

void HostStore::drop(Objects::iterator object) noexcept {
  index_.erase(object->key);
  removed_.add(object->key);
  retire(object);
}

void HostStore::retire(Objects::iterator object) noexcept {
  if (object->kept) kept_blocks_ -= blocks_of(object->bytes);
  if (object->loads > 0) {
    object->dropped = true;
    dropped_.splice(dropped_.end(), list_of(*object), object);
    return;
  }
  free_blocks(object->first);
  list_of(*object).erase(object);
}

void HostStore::copy(const kvc_tier_item& item, int32_t block, bool into_blocks) const noexcept {
  int64_t offset = 0;  // offset in the present block
  for (int32_t i = 0; i < item.num_buffers; ++i) {
    auto* data = static_cast<uint8_t*>(item.buffers[i].data);
    for (int64_t left = item.buffers[i].bytes; left > 0;) {
      if (offset == kBlockBytes) {
        block = next_[block];
        offset = 0;
      }
      const int64_t count = std::min(left, kBlockBytes - offset);
      uint8_t* const stored = memory_ + int64_t{block} * kBlockBytes + offset;
      std::memcpy(into_blocks ? stored : data, into_blocks ? data : stored, static_cast<size_t>(count));
      data += count;
      left -= count;
      offset += count;
    }
  }
}

int64_t HostStore::removed(kvc_tier_key* keys, int64_t capacity) noexcept {
  MutexLock lock(mutex_);
  return removed_.take(keys, capacity);
}

void HostStore::count_failure(int32_t os_error) noexcept {
  MutexLock lock(mutex_);
  ++counts_.failed;
  counts_.last_os_error = os_error;
}

int64_t HostStore::room_to_keep() const noexcept {
  MutexLock lock(mutex_);
  return (num_blocks_ - kept_blocks_) * kBlockBytes;
}

void HostStore::fill(kvc_tier_stats* stats) const noexcept {
  MutexLock lock(mutex_);
  *stats = counts_;
  stats->objects = static_cast<int64_t>(index_.size());
  stats->stored_bytes = (num_blocks_ - num_free_) * kBlockBytes;
  stats->capacity_bytes = num_blocks_ * kBlockBytes;
  stats->load_latency_ns = load_meter_.latency_ns();
  stats->store_latency_ns = store_meter_.latency_ns();
  stats->load_bytes_per_second = load_meter_.bytes_per_second();
  stats->store_bytes_per_second = store_meter_.bytes_per_second();
}

}  // namespace kvc

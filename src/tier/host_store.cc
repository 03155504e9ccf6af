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
namespace {

constexpr int64_t kChunkBytes = int64_t{256} << 20;  // of pinned memory

}  // namespace

Status HostStore::open(int64_t capacity_bytes, std::shared_ptr<Context> pinned_for) {
  if (pinned_for) block_bytes_ = kPinnedBlockBytes;
  const int64_t blocks = capacity_bytes / block_bytes_;
  chunk_blocks_ = pinned_for ? kChunkBytes / block_bytes_ : blocks;
  for (int64_t first = 0; pinned_for && first < blocks; first += chunk_blocks_) {
    const int64_t bytes = std::min(chunk_blocks_, blocks - first) * block_bytes_;
    KVC_TRY(PinnedMemory::allocate(pinned_for, bytes, &pinned_.emplace_back()));
    chunks_.push_back(static_cast<uint8_t*>(pinned_.back()->data()));
  }
  next_ = LazyArray<int32_t>(blocks);
  num_blocks_ = blocks;
  if (!pinned_for) {
    chunks_.reserve(1);
    void* memory = map_memory(static_cast<size_t>(blocks * block_bytes_));
    if (memory == nullptr) {
      return Status::error(KVC_ERROR_OUT_OF_MEMORY, "a host tier of %" PRId64 " bytes: %s", capacity_bytes,
                           std::strerror(errno));
    }
    chunks_.push_back(static_cast<uint8_t*>(memory));
  }
  MutexLock lock(mutex_);
  num_free_ = blocks;
  return Status();
}

HostStore::~HostStore() {
  if (pinned_.empty() && !chunks_.empty()) unmap_memory(chunks_[0], static_cast<size_t>(num_blocks_ * block_bytes_));
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
  if (work == TierWork::kStore) return store(item);
  if (work == TierWork::kLoad) return load(item);
  MutexLock lock(mutex_);
  const auto at = index_.find(item.key);
  if (at == index_.end()) {
    ++counts_.misses;
    return KVC_TIER_MISS;
  }
  drop(at->second);
  ++counts_.removes;
  return KVC_TIER_OK;
}

int32_t HostStore::store(const kvc_tier_item& item) {
  Place place;
  const int32_t begun = begin_store(item.key, item.bytes, (item.flags & KVC_TIER_ITEM_KEEP) != 0, &place);
  if (begun != KVC_TIER_OK) return begun;
  int64_t offset = 0;
  for (int32_t i = 0; i < item.num_buffers; ++i) {
    place.memory_.write(offset, item.buffers[i].data, item.buffers[i].bytes);
    offset += item.buffers[i].bytes;
  }
  end_store(&place, true);
  return KVC_TIER_OK;
}

int32_t HostStore::load(const kvc_tier_item& item) {
  Place place;
  if (const int32_t begun = begin_load(item.key, item.bytes, &place); begun != KVC_TIER_OK) return begun;
  int64_t offset = 0;
  for (int32_t i = 0; i < item.num_buffers; ++i) {
    place.memory_.read(offset, item.buffers[i].data, item.buffers[i].bytes);
    offset += item.buffers[i].bytes;
  }
  end_load(&place, true);
  return KVC_TIER_OK;
}

// Chains do not change while an object is open, so this method needs no lock.
ObjectMemory HostStore::memory_of(const Object& object) const {
  ObjectMemory memory;
  memory.pinned = pinned();
  int64_t left = object.bytes;
  for (int32_t block = object.first; left > 0; block = next_[block]) {
    uint8_t* const data = address(block);
    const int64_t count = std::min(left, block_bytes_);
    left -= count;
    if (!memory.runs.empty() && memory.runs.back().data() + memory.runs.back().size() == data) {
      memory.runs.back() = {memory.runs.back().data(), memory.runs.back().size() + static_cast<size_t>(count)};
    } else {
      memory.runs.emplace_back(data, static_cast<size_t>(count));
    }
  }
  return memory;
}

int32_t HostStore::begin_store(const kvc_tier_key& key, int64_t bytes, bool kept, Place* place) {
  Objects made(1);  // may throw, so it comes before any change
  made.front().key = key;
  made.front().bytes = bytes;
  made.front().kept = kept;
  {
    MutexLock lock(mutex_);
    if (!take_blocks(blocks_of(bytes), &made.front().first)) return KVC_TIER_RETRY;
    place->transfer_ = store_meter_.begin(steady_ns());
  }
  place->made_ = std::move(made);
  try {
    place->memory_ = memory_of(place->made_.front());
  } catch (...) {
    end_store(place, false);
    throw;
  }
  return KVC_TIER_OK;
}

void HostStore::end_store(Place* place, bool filled) {
  Objects& made = place->made_;
  const int64_t bytes = made.front().bytes;
  MutexLock lock(mutex_);
  store_meter_.end(place->transfer_, steady_ns(), filled ? bytes : 0);
  if (!filled) return free_blocks(made.front().first);
  try {
    const auto [at, is_new] = index_.try_emplace(made.front().key, made.begin());
    if (!is_new) retire(std::exchange(at->second, made.begin()));
  } catch (...) {
    free_blocks(made.front().first);
    throw;
  }
  ++counts_.stores;
  counts_.written_bytes += bytes;
  if (made.front().kept) kept_blocks_ += blocks_of(bytes);
  Objects& list = list_of(made.front());
  list.splice(list.end(), made);
}

int32_t HostStore::begin_load(const kvc_tier_key& key, int64_t bytes, Place* place) {
  {
    MutexLock lock(mutex_);
    const auto at = index_.find(key);
    if (at == index_.end() || at->second->bytes != bytes) {
      ++counts_.misses;
      return KVC_TIER_MISS;
    }
    const Objects::iterator object = place->object_ = at->second;
    ++object->loads;
    Objects& list = list_of(*object);
    list.splice(list.end(), list, object);
    place->transfer_ = load_meter_.begin(steady_ns());
  }
  try {
    place->memory_ = memory_of(*place->object_);
  } catch (...) {
    end_load(place, false);
    throw;
  }
  return KVC_TIER_OK;
}

void HostStore::end_load(Place* place, bool used) noexcept {
  const Objects::iterator object = place->object_;
  MutexLock lock(mutex_);
  load_meter_.end(place->transfer_, steady_ns(), used ? object->bytes : 0);
  if (used) {
    ++counts_.loads;
    counts_.loaded_bytes += object->bytes;
  }
  if (--object->loads > 0 || !object->dropped) return;
  free_blocks(object->first);
  dropped_.erase(object);
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
  // Freed blocks come before fresh ones. Each block that is taken becomes the first of the chain. free_blocks has put
  // the last block of a chain first, so a chain that is freed and taken again has its old order.
  const auto take = [&](int32_t block) {
    next_[block] = *first;
    *first = block;
    --count;
  };
  while (count > 0 && free_ >= 0) {
    const int32_t block = free_;
    free_ = next_[block];
    take(block);
  }
  const auto fresh = static_cast<int32_t>(count);
  for (int32_t i = fresh; i > 0; --i) take(fresh_ + i - 1);
  fresh_ += fresh;
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
  return (num_blocks_ - kept_blocks_) * block_bytes_;
}

void HostStore::fill(kvc_tier_stats* stats) const noexcept {
  MutexLock lock(mutex_);
  *stats = counts_;
  stats->objects = static_cast<int64_t>(index_.size());
  stats->stored_bytes = (num_blocks_ - num_free_) * block_bytes_;
  stats->capacity_bytes = num_blocks_ * block_bytes_;
  stats->load_latency_ns = load_meter_.latency_ns();
  stats->store_latency_ns = store_meter_.latency_ns();
  stats->load_bytes_per_second = load_meter_.bytes_per_second();
  stats->store_bytes_per_second = store_meter_.bytes_per_second();
}

}  // namespace kvc

#include "tier/disk_store.h"

#include <algorithm>
#include <cerrno>

#include "base/steady_clock.h"
#include "base/wall_clock.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

// A load writes a new stamp (the time of last use) to the file if the stamp of the file is older than this.
constexpr int64_t kStampEveryNs = 1'000'000'000;

// All stamps are multiples of this, because NTFS does not keep smaller parts of a file's time.
constexpr int64_t kStampStepNs = 100;

}  // namespace

DiskStore::DiskStore(const DiskTierOptions& options) noexcept
    : ops_(options.ops ? *options.ops : system_file_ops()),
      wall_ns_(options.wall_ns ? options.wall_ns : wall_ns),
      capacity_bytes_(options.capacity_bytes),
      scan_at_open_(options.scan_at_open),
      rescan_ns_(options.rescan_ms * 1'000'000),
      sync_(options.sync) {
  folder_stamps_ns_.fill(-1);
}

Status DiskStore::open(const std::string& directory) {
  KVC_TRY(ObjectFolder::open(directory, sync_, ops_, &folder_));
  for (int folder = 0; folder < ObjectIndex::kFolders; ++folder) {
    {
      MutexLock lock(mutex_);
      if (index_.objects() >= scan_at_open_ && folder > 0) return Status();
    }
    scan_folder(folder);
    folders_scanned_.store(folder + 1, std::memory_order_release);
  }
  if (!folder_->read_only()) make_room(0, nullptr);
  return Status();
}

void DiskStore::forget_descriptors() noexcept {
  if (folder_) folder_->forget_descriptors();
}

void DiskStore::lookup(int64_t n, const kvc_tier_key* keys, kvc_tier_found* found, bool* rescan) noexcept {
  const int scanned = folders_scanned_.load(std::memory_order_acquire);
  int64_t hits = 0, misses = 0;
  MutexLock lock(mutex_);
  for (int64_t i = 0; i < n; ++i) {
    found[i] = {};
    if (const ObjectIndex::Entry* entry = index_.find(keys[i])) {
      found[i].result = KVC_TIER_HIT;
      found[i].bytes = entry->payload_bytes;
      ++hits;
    } else if (keys[i].bytes[0] >= scanned || (!storing_.empty() && storing_.count(keys[i]) > 0)) {
      found[i].result = KVC_TIER_PENDING;
    } else {
      found[i].result = KVC_TIER_MISS;
      ++misses;
    }
  }
  counts_.lookups += n;
  counts_.hits += hits;
  *rescan = false;
  if (misses == 0 || scanned < ObjectIndex::kFolders) return;
  const int64_t now = steady_ns();
  if (now < next_rescan_ns_) return;
  next_rescan_ns_ = now + rescan_ns_;
  *rescan = true;
}

void DiskStore::begin_store(const kvc_tier_key& key) {
  MutexLock lock(mutex_);
  ++storing_[key];
}

void DiskStore::end_store(const kvc_tier_key& key) noexcept {
  MutexLock lock(mutex_);
  const auto at = storing_.find(key);
  if (at != storing_.end() && --at->second == 0) storing_.erase(at);
}

int64_t DiskStore::next_stamp() noexcept {
  const int64_t higher = std::max(latest_stamp_ns_, index_.latest_stamp_ns()) + kStampStepNs;
  latest_stamp_ns_ = std::max(wall_ns_(), higher) / kStampStepNs * kStampStepNs;
  return latest_stamp_ns_;
}

bool DiskStore::reserve(int64_t bytes) noexcept {
  MutexLock lock(mutex_);
  if (reserved_bytes_ + bytes > capacity_bytes_) return false;
  reserved_bytes_ += bytes;
  return true;
}

void DiskStore::make_room(int64_t wanted_bytes, std::string* recycled) {
  constexpr int kMostUses = 64;  // most objects that a call skips because another process used them
  for (int uses = 0;; ++uses) {
    {
      MutexLock lock(mutex_);
      if (index_.stored_bytes() + reserved_bytes_ <= capacity_bytes_ || index_.objects() == 0) return;
    }
    evict_oldest(uses < kMostUses, wanted_bytes, recycled);
  }
}

void DiskStore::evict_oldest(bool look_for_uses, int64_t wanted_bytes, std::string* recycled) {
  kvc_tier_key key;
  {
    MutexLock lock(mutex_);
    const kvc_tier_key* oldest = index_.oldest();
    if (!oldest) return;
    key = *oldest;
  }
  MutexLock name(stripe(key));
  ObjectIndex::Entry entry;
  {
    MutexLock lock(mutex_);
    const ObjectIndex::Entry* now = index_.find(key);
    if (!now) return;
    entry = *now;
  }
  FileStatus status;
  if (look_for_uses && folder_->status(key, entry.payload_bytes, &status) == 0 &&
      status.stamp_ns > std::max(entry.file_stamp_ns, entry.stamp_ns)) {
    MutexLock lock(mutex_);
    index_.touch(key, status.stamp_ns, status.stamp_ns);
    return;
  }
  const bool recycle = recycled && recycled->empty() && frame_bytes(entry.payload_bytes) == wanted_bytes;
  if (!recycle || !folder_->recycle(key, entry.payload_bytes, recycled)) folder_->remove(key, entry.payload_bytes);
  MutexLock lock(mutex_);
  index_.erase(key);
  ++counts_.evictions;
}

void DiskStore::forget(const kvc_tier_item& item, bool damaged) {
  MutexLock name(stripe(item.key));
  FileStatus status;
  if (damaged) {
    damaged = folder_->remove(item.key, item.bytes) != -ENOENT;  // if it is gone, a scan has removed and counted it
  } else if (folder_->status(item.key, item.bytes, &status) == 0) {
    return;  // another store has replaced it
  }
  MutexLock lock(mutex_);
  counts_.damaged += damaged;
  const ObjectIndex::Entry* entry = index_.find(item.key);
  if (entry && entry->payload_bytes == item.bytes) index_.erase(item.key);
}

// Gives the file its final name, and updates the entry of its object in the index.
DiskStore::Outcome DiskStore::publish(const kvc_tier_item& item, const std::string& name, int64_t stamp_ns,
                                      int64_t* reserved) {
  MutexLock stripe_lock(stripe(item.key));
  Outcome outcome = folder_->publish(name, item.key, item.bytes);
  int64_t old_bytes = -1;
  {
    MutexLock lock(mutex_);
    if (const ObjectIndex::Entry* old = index_.find(item.key)) old_bytes = old->payload_bytes;
    if (outcome.result == KVC_TIER_OK) {
      try {
        index_.put(item.key, item.bytes, stamp_ns);
        // The index now counts the new file, and no longer an old file of another size, which is removed below.
        const int64_t left = old_bytes >= 0 && old_bytes != item.bytes ? frame_bytes(old_bytes) : 0;
        reserved_bytes_ += left - *reserved;
        *reserved = left;
      } catch (const std::bad_alloc&) {
        outcome = {KVC_TIER_FAILED, ENOMEM, false};
      }
    }
    if (outcome.result != KVC_TIER_OK && old_bytes == item.bytes) index_.erase(item.key);
  }
  // A file whose name was not synchronised to the disk is removed, because the name could lead to the old object after
  // a loss of power.
  if (outcome.result != KVC_TIER_OK) {
    folder_->remove(item.key, item.bytes);
  } else if (old_bytes >= 0 && old_bytes != item.bytes) {
    folder_->remove(item.key, old_bytes);
  }
  return outcome;
}

// Writes an object to a file, and gives the file its final name. name: name of a recycled file, or empty.
DiskStore::Outcome DiskStore::write(const kvc_tier_item& item, int64_t stamp_ns, std::string name, Bounce& bounce,
                                    int64_t* reserved) {
  const Outcome outcome = folder_->write(item, stamp_ns, bounce, &name);
  return outcome.result == KVC_TIER_OK ? publish(item, name, stamp_ns, reserved) : outcome;
}

DiskStore::Outcome DiskStore::store(const kvc_tier_item& item, Bounce& bounce) {
  if (folder_->read_only()) return {KVC_TIER_FAILED, EROFS, false};
  const int64_t bytes = frame_bytes(item.bytes);
  // Bytes are reserved before objects are evicted, so that nothing is evicted for a store that does not fit.
  if (!reserve(bytes)) return {KVC_TIER_RETRY, 0, false};
  std::string recycled;
  try {
    make_room(bytes, &recycled);
  } catch (const std::bad_alloc&) {
    if (!recycled.empty()) folder_->discard(recycled);
    MutexLock lock(mutex_);
    reserved_bytes_ -= bytes;
    throw;
  }
  int64_t stamp;
  TransferMeter::Item transfer;
  {
    MutexLock lock(mutex_);
    stamp = next_stamp();
    transfer = store_meter_.begin(steady_ns());
  }
  Outcome outcome;
  int64_t reserved = bytes;
  try {
    outcome = write(item, stamp, std::move(recycled), bounce, &reserved);
  } catch (const std::bad_alloc&) {
    outcome = {KVC_TIER_FAILED, ENOMEM, false};
  }
  MutexLock lock(mutex_);
  reserved_bytes_ -= reserved;
  const bool ok = outcome.result == KVC_TIER_OK;
  store_meter_.end(transfer, steady_ns(), ok ? item.bytes : 0);
  if (ok) counts_.written_bytes += item.bytes;
  return outcome;
}

DiskStore::Loading DiskStore::begin_load(const kvc_tier_item& item) noexcept {
  Loading loading;
  MutexLock lock(mutex_);
  loading.stamp_ns = loading.file_stamp_ns = next_stamp();
  const ObjectIndex::Entry* entry = index_.find(item.key);
  if (entry && loading.stamp_ns - entry->file_stamp_ns < kStampEveryNs) loading.file_stamp_ns = entry->file_stamp_ns;
  loading.transfer = load_meter_.begin(steady_ns());
  return loading;
}

DiskStore::Outcome DiskStore::end_load(const kvc_tier_item& item, const Loading& loading, const Outcome& outcome) {
  const bool ok = outcome.result == KVC_TIER_OK;
  if (outcome.damaged || outcome.result == KVC_TIER_MISS) forget(item, outcome.damaged);
  bool has_entry = false;
  {
    MutexLock lock(mutex_);
    load_meter_.end(loading.transfer, steady_ns(), ok ? item.bytes : 0);
    if (!ok) return outcome;
    counts_.loaded_bytes += item.bytes;
    if (const ObjectIndex::Entry* entry = index_.find(item.key)) {
      has_entry = true;
      if (entry->payload_bytes == item.bytes) index_.touch(item.key, loading.stamp_ns, loading.file_stamp_ns);
    }
  }
  // The index has no entry: either another process has stored the object, or it was evicted while it was read.
  // add_found checks whether the file exists.
  if (!has_entry) add_found(item.key, item.bytes);
  return outcome;
}

DiskStore::Outcome DiskStore::load(const kvc_tier_item& item, Bounce& bounce) {
  const Loading loading = begin_load(item);
  // The name of the file is computed from the item. So a load also finds an object of another process that no scan has
  // found yet.
  Outcome outcome;
  try {
    outcome = folder_->read(item, new_stamp(loading), bounce);
  } catch (const std::bad_alloc&) {
    outcome = {KVC_TIER_FAILED, ENOMEM, false};
  }
  return end_load(item, loading, outcome);
}

void DiskStore::load_many(const kvc_tier_item* const* items, int n, Bounce& bounce, ReadRing& ring,
                          const std::function<void(int, const Outcome&)>& done) noexcept {
  constexpr Outcome kNoMemory = {KVC_TIER_FAILED, ENOMEM, false};
  struct Open {
    int item = 0;
    std::string name;
    Loading loading;
  };
  std::array<Open, ReadRing::kMostReads> open;
  std::array<FileRead, ReadRing::kMostReads> reads;
  int count = 0;
  uint8_t* memory = bounce.data();
  const auto end = [&](int i, const Loading& loading, Outcome outcome) {
    try {
      outcome = end_load(*items[i], loading, outcome);
    } catch (const std::bad_alloc&) {
      outcome = kNoMemory;
    }
    done(i, outcome);
  };
  for (int i = 0; i < n; ++i) {
    const kvc_tier_item& item = *items[i];
    Open& next = open[static_cast<size_t>(count)];
    next.item = i;
    next.loading = begin_load(item);
    Outcome outcome = kNoMemory;
    int fd = -1;
    try {
      next.name = object_name(item.key, item.bytes);
      fd = folder_->open_object(next.name, &outcome);
    } catch (const std::bad_alloc&) {
    }
    if (fd >= 0 && folder_->is_readable(fd, item)) {
      reads[static_cast<size_t>(count++)] = {fd, memory, frame_bytes(item.bytes), 0};
      memory += frame_bytes(item.bytes);
      continue;
    }
    if (fd >= 0) {
      outcome = folder_->read_opened(fd, next.name, item, new_stamp(next.loading), memory, {}, bounce.checksum());
    }
    end(i, next.loading, outcome);
  }
  const auto finish = [&](int k) {
    const FileRead& read = reads[static_cast<size_t>(k)];
    const Open& of = open[static_cast<size_t>(k)];
    const kvc_tier_item& item = *items[of.item];
    // Where the kernel does not read at once, read_opened reads the file.
    const bool not_begun = read.result == -EAGAIN || read.result == -EINTR;
    end(of.item, of.loading,
        folder_->read_opened(read.fd, of.name, item, new_stamp(of.loading), static_cast<uint8_t*>(read.data),
                             {true, not_begun ? 0 : read.result}, bounce.checksum()));
  };
  ops_.read_many(ring, reads.data(), count, std::ref(finish));  // a reference, so that no memory is needed
}

// Removes all files of the key, of every size and of every process.
DiskStore::Outcome DiskStore::remove(const kvc_tier_key& key) {
  MutexLock name(stripe(key));
  int64_t removed = 0;
  int error = 0;
  const int listed = folder_->list(key.bytes[0], [&](const kvc_tier_key& found, int64_t payload_bytes) {
    if (!(found == key)) return;
    const int result = folder_->remove(key, payload_bytes);
    removed += result == 0;
    if (result < 0 && result != -ENOENT) error = result;
  });
  MutexLock lock(mutex_);
  index_.erase(key);
  if (listed < 0) error = listed;
  if (error < 0) return {KVC_TIER_FAILED, -error, false};
  return {removed > 0 ? KVC_TIER_OK : KVC_TIER_MISS, 0, false};
}

void DiskStore::count(TierWork work, const Outcome& outcome) noexcept {
  MutexLock lock(mutex_);
  switch (outcome.result) {
    case KVC_TIER_OK:
      ++(work == TierWork::kLoad ? counts_.loads : work == TierWork::kStore ? counts_.stores : counts_.removes);
      break;
    case KVC_TIER_MISS:
      ++counts_.misses;
      break;
    case KVC_TIER_CANCELLED:
      ++counts_.cancelled;
      break;
    case KVC_TIER_FAILED:
      ++counts_.failed;
      counts_.last_os_error = outcome.os_error;
      break;
    default:
      break;
  }
}

int64_t DiskStore::removed(kvc_tier_key* keys, int64_t capacity) noexcept {
  MutexLock lock(mutex_);
  return index_.removed().take(keys, capacity);
}

void DiskStore::fill(kvc_tier_stats* stats) const noexcept {
  MutexLock lock(mutex_);
  *stats = counts_;
  stats->objects = index_.objects();
  stats->stored_bytes = index_.stored_bytes();
  stats->capacity_bytes = capacity_bytes_;
  stats->load_latency_ns = load_meter_.latency_ns();
  stats->store_latency_ns = store_meter_.latency_ns();
  stats->load_bytes_per_second = load_meter_.bytes_per_second();
  stats->store_bytes_per_second = store_meter_.bytes_per_second();
}

}  // namespace kvc

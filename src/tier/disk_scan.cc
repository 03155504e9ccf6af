// DiskStore: scans the directory for files of objects and updates the index, at open and when other processes change
// the directory.
#include <algorithm>

#include "base/steady_clock.h"
#include "tier/disk_store.h"

namespace kvc {
namespace {

// Two changes of a folder within one tick of the file system's clock give the same change time. So a folder that
// changed less than kSettledNs before its scan is scanned again.
constexpr int64_t kSettledNs = 2'000'000'000;

}  // namespace

void DiskStore::scan() {
  if (scanning_.exchange(true)) return;
  const struct Scanning {  // resets the flag, also if `make_room` throws
    std::atomic<bool>& flag;
    ~Scanning() { flag.store(false); }
  } scanning{scanning_};
  const int64_t began = steady_ns();
  if (scanned()) {
    scan_changed_folders();
  } else {
    for (int folder = folders_scanned_.load(); folder < ObjectIndex::kFolders; ++folder) {
      scan_folder(folder);
      folders_scanned_.store(folder + 1, std::memory_order_release);
    }
  }
  if (!folder_->read_only()) make_room(0, nullptr);
  {
    // The next scan begins after at least 20 times the duration of this scan, so scans take less than 5 % of a thread's
    // time.
    MutexLock lock(mutex_);
    const int64_t now = steady_ns();
    next_rescan_ns_ = std::max(next_rescan_ns_, now + 20 * (now - began));
  }
}

void DiskStore::scan_changed_folders() noexcept {
  for (int folder = 0; folder < ObjectIndex::kFolders; ++folder) {
    const int64_t known = folder_stamps_ns_[static_cast<size_t>(folder)];
    if (known < 0 || folder_->folder_stamp_ns(folder) != known) scan_folder(folder);
  }
}

// If a folder cannot be listed, its entries stay, and the next scan lists it again.
void DiskStore::scan_folder(int folder) noexcept {
  int64_t& stamp = folder_stamps_ns_[static_cast<size_t>(folder)];
  stamp = -1;
  {
    MutexLock lock(mutex_);
    index_.begin_listing();
  }
  const int64_t changed = folder_->folder_stamp_ns(folder);
  try {
    const int error =
        folder_->list(folder, [&](const kvc_tier_key& key, int64_t payload_bytes) { add_found(key, payload_bytes); });
    if (error < 0) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  MutexLock lock(mutex_);
  index_.end_listing(folder);
  if (changed < wall_ns_() - kSettledNs) stamp = changed;
}

void DiskStore::add_found(const kvc_tier_key& key, int64_t payload_bytes) {
  {
    MutexLock lock(mutex_);
    const ObjectIndex::Entry* entry = index_.find(key);
    if (entry && entry->payload_bytes == payload_bytes) return index_.seen(key);
  }
  MutexLock name(stripe(key));
  FileStatus status;
  if (folder_->status(key, payload_bytes, &status) < 0) return;
  if (!status.regular || status.bytes != frame_bytes(payload_bytes)) {
    folder_->remove(key, payload_bytes);
    MutexLock lock(mutex_);
    ++counts_.damaged;
    return;
  }
  // A key can have two files of different sizes if two processes stored it at the same time, or after a crash. The
  // newer file stays.
  int64_t extra_bytes = -1;
  {
    MutexLock lock(mutex_);
    const ObjectIndex::Entry* entry = index_.find(key);
    const bool is_newer = !entry || status.stamp_ns > entry->stamp_ns;
    if (entry && entry->payload_bytes != payload_bytes) extra_bytes = is_newer ? entry->payload_bytes : payload_bytes;
    if (is_newer) index_.put(key, payload_bytes, status.stamp_ns);
    index_.seen(key);
  }
  if (extra_bytes >= 0) folder_->remove(key, extra_bytes);
}

}  // namespace kvc

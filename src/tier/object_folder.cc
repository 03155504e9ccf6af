#include "tier/object_folder.h"

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <new>
#include <thread>

#include "base/wall_clock.h"
#include "system/process.h"
#include "system/random.h"
#include "tier/object_name.h"

namespace kvc {
namespace {

constexpr char kMarkerName[] = "kvcache-tier";
constexpr char kMarkerText[] = "libkvcache disk tier, version 1\n";
constexpr int64_t kMarkerBytes = sizeof kMarkerText - 1;
constexpr char kTemporaryFolder[] = "tmp";
constexpr std::align_val_t kAlignment{kFrameBlockBytes};  // what direct I/O needs
constexpr int64_t kStaleTemporaryNs = int64_t{3600} * 1'000'000'000;

Status os_failure(const std::string& path, const char* what, int error) {
  const kvc_status status = error == -ENOMEM ? KVC_ERROR_OUT_OF_MEMORY : KVC_ERROR_IO;
  return Status::error(status, "directory \"%.200s\": %s: %s", path.c_str(), what, std::strerror(-error));
}

bool forbids_writing(int error) { return error == -EROFS || error == -EACCES || error == -EPERM; }

}  // namespace

void Bounce::Free::operator()(uint8_t* memory) const noexcept { ::operator delete(memory, kAlignment); }

Bounce::Bounce() : memory_(static_cast<uint8_t*>(::operator new(kBytes, kAlignment))) {
  static_assert(kBytes % kFrameBlockBytes == 0);
}

Status ObjectFolder::open(const std::string& path, DiskSync sync, FileOps& ops, std::unique_ptr<ObjectFolder>* out) {
  std::unique_ptr<ObjectFolder> folder(new ObjectFolder(sync, ops));
  const int made = ops.make_folder_at(FileOps::kWorkingFolder, path.c_str());
  if (made < 0 && made != -EEXIST && !forbids_writing(made)) return os_failure(path, "mkdir", made);
  folder->root_ = ops.open_at(FileOps::kWorkingFolder, path.c_str(), kOpenRead | kOpenFolder, 0);
  if (folder->root_ < 0) return os_failure(path, "open", folder->root_);
  KVC_TRY(folder->check_marker(path));
  uint64_t unique = 0;
  if (!fill_random(&unique, sizeof unique)) return os_failure(path, "random bytes", -errno);
  char text[64];
  std::snprintf(text, sizeof text, "%" PRId64 "-%016" PRIx64 "-", process_id(), unique);
  folder->own_names_ = text;
  if (!folder->read_only_) {
    const int temporary = ops.make_folder_at(folder->root_, kTemporaryFolder);
    if (forbids_writing(temporary)) {
      folder->read_only_ = true;
    } else if (temporary < 0 && temporary != -EEXIST && temporary != -ENOSPC) {
      return os_failure(path, "mkdir tmp", temporary);
    }
  }
  if (!folder->read_only_) {
    KVC_TRY(folder->lock_and_clean());
    folder->probe_direct();
  }
  *out = std::move(folder);
  return Status();
}

ObjectFolder::~ObjectFolder() { forget_descriptors(); }

void ObjectFolder::forget_descriptors() noexcept {
  if (marker_ >= 0) ops_.close(marker_);
  if (root_ >= 0) ops_.close(root_);
  marker_ = root_ = -1;
}

// Opens or creates the marker file. A directory without a marker must be empty. So if the path is wrong, the tier does
// not delete files of another program.
Status ObjectFolder::check_marker(const std::string& path) {
  marker_ = ops_.open_at(root_, kMarkerName, kOpenRead | kOpenWrite, 0);
  if (forbids_writing(marker_)) {
    read_only_ = true;
    marker_ = ops_.open_at(root_, kMarkerName, kOpenRead, 0);
  }
  if (marker_ == -ENOENT) {
    int64_t entries = 0;
    const int listed = ops_.list(root_, [&](const char* name) { entries += std::strcmp(name, kMarkerName) != 0; });
    if (listed < 0) return os_failure(path, "list", listed);
    // Every process creates the marker before other files. So if there are entries, another process may have created
    // the marker after the first open_at, and the marker is opened again.
    marker_ = ops_.open_at(root_, kMarkerName, kOpenRead | kOpenWrite | (entries == 0 ? kOpenCreate : 0), 0600);
    if (marker_ == -ENOENT) {
      return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                           "directory \"%.200s\" has %" PRId64
                           " entries and no file %s: it is not empty and not that of a tier",
                           path.c_str(), entries, kMarkerName);
    }
  }
  if (marker_ < 0) return os_failure(path, "open kvcache-tier", marker_);
  char text[kMarkerBytes + 1];
  const int64_t got = ops_.read_at(marker_, text, sizeof text, 0);
  if (got < 0) return os_failure(path, "read kvcache-tier", static_cast<int>(got));
  if (got > kMarkerBytes || std::memcmp(text, kMarkerText, static_cast<size_t>(got)) != 0) {
    return Status::error(KVC_ERROR_UNSUPPORTED, "directory \"%.200s\": %s is of another version of libkvcache",
                         path.c_str(), kMarkerName);
  }
  if (got < kMarkerBytes && !read_only_) {  // the marker is new, or a crash or a full disk has cut it
    const int64_t put = ops_.write_at(marker_, kMarkerText, kMarkerBytes, 0);
    if (put < 0 && put != -ENOSPC) return os_failure(path, "write kvcache-tier", static_cast<int>(put));
  }
  return Status();
}

// Removes files in tmp/ that other processes did not finish. If no other process holds the lock, removes all files in
// tmp/. Otherwise, removes files that are older than an hour. If the clock is wrong, this may remove a file that
// another process is writing. Then only that store fails.
Status ObjectFolder::lock_and_clean() {
  const bool alone = lock_file(marker_, true) == 0;
  const int folder = ops_.open_at(root_, kTemporaryFolder, kOpenRead | kOpenFolder, 0);
  if (folder >= 0) {
    const int64_t now_ns = wall_ns();
    ops_.list(folder, [&](const char* name) {
      FileStatus status;
      if (ops_.status_at(folder, name, &status) < 0 || !status.regular) return;
      if (alone || status.stamp_ns < now_ns - kStaleTemporaryNs) ops_.unlink_at(folder, name);
    });
    ops_.close(folder);
  }
  // Another process holds the exclusive lock only while it removes files. If this process gets no shared lock, the next
  // process may remove a file that this process is writing. Then only that store fails.
  for (int tries = 0; lock_file(marker_, false) == -EWOULDBLOCK && tries < 100; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return Status();
}

void ObjectFolder::probe_direct() {
  std::string name = temporary_name();
  const int fd = ops_.open_at(root_, name.c_str(), kOpenWrite | kOpenNew | kOpenDirect, 0600);
  if (fd < 0) return;
  if (void* block = ::operator new(kFrameBlockBytes, kAlignment, std::nothrow)) {
    std::memset(block, 0, kFrameBlockBytes);
    direct_ = ops_.write_at(fd, block, kFrameBlockBytes, kFrameBlockBytes) == kFrameBlockBytes;
    ::operator delete(block, kAlignment);
  }
  ops_.close(fd);
  ops_.unlink_at(root_, name.c_str());
}

std::string ObjectFolder::temporary_name() {
  return std::string(kTemporaryFolder) + "/" + own_names_ +
         std::to_string(next_name_.fetch_add(1, std::memory_order_relaxed));
}

// Opens a file in tmp/ for writing. A recycled file gets a new stamp at once, so that no other process removes it as
// the leftover of a crash.
int ObjectFolder::open_temporary(int64_t stamp_ns, std::string* name) {
  if (!name->empty()) {
    const int fd = ops_.open_at(root_, name->c_str(), kOpenWrite | kOpenPlain | (direct_ ? kOpenDirect : 0), 0);
    if (fd >= 0 && ops_.set_stamp(fd, stamp_ns) == 0) return fd;
    if (fd >= 0) ops_.close(fd);
    discard(*name);
  }
  *name = temporary_name();
  const int flags = kOpenWrite | kOpenNew | (direct_ ? kOpenDirect : 0);
  const int fd = ops_.open_at(root_, name->c_str(), flags, 0600);
  if (fd != -ENOENT) return fd;
  ops_.make_folder_at(root_, kTemporaryFolder);
  return ops_.open_at(root_, name->c_str(), flags, 0600);
}

bool ObjectFolder::recycle(const kvc_tier_key& key, int64_t payload_bytes, std::string* name) {
  if (sync_ != DiskSync::kNever) return false;
  *name = temporary_name();
  if (ops_.rename_at(root_, object_name(key, payload_bytes).c_str(), name->c_str()) == 0) return true;
  name->clear();
  return false;
}

void ObjectFolder::discard(const std::string& name) { ops_.unlink_at(root_, name.c_str()); }

int ObjectFolder::remove(const kvc_tier_key& key, int64_t payload_bytes) {
  return ops_.unlink_at(root_, object_name(key, payload_bytes).c_str());
}

int ObjectFolder::status(const kvc_tier_key& key, int64_t payload_bytes, FileStatus* status) {
  return ops_.status_at(root_, object_name(key, payload_bytes).c_str(), status);
}

int ObjectFolder::list(int folder, const std::function<void(const kvc_tier_key&, int64_t)>& found) {
  const int fd = ops_.open_at(root_, folder_name(folder).c_str(), kOpenRead | kOpenFolder, 0);
  if (fd == -ENOENT) return 0;
  if (fd < 0) return fd;
  const int result = ops_.list(fd, [&](const char* name) {
    kvc_tier_key key;
    int64_t payload_bytes;
    if (parse_object_name(folder, name, &key, &payload_bytes)) found(key, payload_bytes);
  });
  ops_.close(fd);
  return result;
}

int64_t ObjectFolder::folder_stamp_ns(int folder) {
  FileStatus status;
  return ops_.status_at(root_, folder_name(folder).c_str(), &status) == 0 ? status.stamp_ns : 0;
}

}  // namespace kvc

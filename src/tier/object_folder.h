// ObjectFolder: the directory of a disk tier. It reads and writes whole objects as files.
//
//   kvcache-tier        what the directory is; every process that uses the directory holds a shared lock on it
//   tmp/                files that are being written
//   00/ .. ff/          objects, by the first byte of their key: <key in hex>.<bytes of the payload in hex>
//
// A file is written under a name in tmp/ and then renamed. So a name that an object can have always belongs to a whole
// file, unless power was lost or the disk is damaged. A read checks the frame, so it never returns other bytes.
//
// Thread safety: any thread. Each call has a Bounce of its own. Calls block on I/O.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "tier/file_ops.h"
#include "tier/object_frame.h"

namespace kvc {

// When a store waits for the disk.
enum class DiskSync {
  kNever,  // after a loss of power, an object may be gone or damaged. Damage is seen by its checksum
  kData,   // a file reaches the disk before it gets its name: an object may be gone, but not damaged
  kFull    // the name reaches the disk too: an object whose store has completed survives
};

// Memory that direct I/O can use, and a checksum in progress.
class Bounce {
 public:
  static constexpr int64_t kBytes = (int64_t{2} << 20) + kFrameBlockBytes;  // an object of 2 MiB is one transfer

  Bounce();  // throws std::bad_alloc
  uint8_t* data() const noexcept { return memory_.get(); }
  RunningChecksum& checksum() noexcept { return checksum_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const noexcept;
  };
  std::unique_ptr<uint8_t, Free> memory_;
  RunningChecksum checksum_;
};

class ObjectFolder {
 public:
  // Opens a directory, and creates it if it is missing. A directory that has other files and is no tier's is refused.
  static Status open(const std::string& path, DiskSync sync, FileOps& ops, std::unique_ptr<ObjectFolder>* folder);
  ~ObjectFolder();
  ObjectFolder(const ObjectFolder&) = delete;
  ObjectFolder& operator=(const ObjectFolder&) = delete;

  void forget_descriptors() noexcept;  // closes them; in a child of fork()

  // Nothing can be written, because the file system or its permissions forbid it.
  bool read_only() const noexcept { return read_only_; }
  bool direct() const noexcept { return direct_; }  // direct I/O is in use

  // What happened to an object: a KVC_TIER_* with the errno of FAILED.
  struct Outcome {
    int32_t result = KVC_TIER_OK;
    int32_t os_error = 0;
    bool damaged = false;  // the file has other bytes or cannot be read, so it should be removed
  };

  // Renames the file of an object that is not needed any more, so that `write` can overwrite it. To overwrite the
  // blocks of a file is many times faster than to make a file. Fails if that is not allowed: with kData and kFull, a
  // name must never lead to other bytes after a loss of power.
  //   name   out: the temporary name that the file has now, for `write`; empty on failure
  bool recycle(const kvc_tier_key& key, int64_t payload_bytes, std::string* name);
  void discard(const std::string& name);  // removes a temporary file

  // Writes an object under a temporary name. On failure there is no file.
  //   name   in: a recycled file with as many blocks, or empty; out: the temporary name
  Outcome write(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce, std::string* name);
  // Gives a written file its name, or removes it on failure.
  Outcome publish(const std::string& name, const kvc_tier_key& key, int64_t payload_bytes);
  // Reads an object into the item's buffers. stamp_ns: the file's time becomes this; 0 = leave it.
  Outcome read(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce);

  // 0 or a negative errno.
  int remove(const kvc_tier_key& key, int64_t payload_bytes);
  int status(const kvc_tier_key& key, int64_t payload_bytes, FileStatus* status);
  // Calls found(key, payload_bytes) for the objects of one of the 256 folders. Other files are left alone.
  int list(int folder, const std::function<void(const kvc_tier_key& key, int64_t payload_bytes)>& found);
  // Time of the folder's last change, or 0.
  int64_t folder_stamp_ns(int folder);

 private:
  ObjectFolder(DiskSync sync, FileOps& ops) noexcept : sync_(sync), ops_(ops) {}
  Status check_marker(const std::string& path);
  Status lock_and_clean();
  void probe_direct();
  std::string temporary_name();
  int open_temporary(int64_t stamp_ns, std::string* name);
  int write_frame(int fd, const kvc_tier_item& item, Bounce& bounce);
  Outcome read_frame(int fd, const kvc_tier_item& item, Bounce& bounce);
  int sync_name(const char* folder);

  const DiskSync sync_;
  FileOps& ops_;
  int root_ = -1;    // the directory
  int marker_ = -1;  // kvcache-tier; it holds the lock
  bool read_only_ = false;
  bool direct_ = false;
  std::string own_names_;  // a prefix that no other process and no other tier has
  std::atomic<uint64_t> next_name_{0};
};

}  // namespace kvc

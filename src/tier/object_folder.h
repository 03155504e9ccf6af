// ObjectFolder: the directory of a disk tier. It reads and writes whole objects as files.
//
//   kvcache-tier        marks the directory as a tier; every process that may write to it has a shared lock on this
//   file tmp/                files that are being written 00/ .. ff/          objects, by the first byte of their key:
//   <key in hex>.<bytes of the payload in hex>
//
// A file is written in tmp/ and then renamed. So a file with the name of an object is complete, unless power was lost
// or the disk is damaged. A read checks the frame (object_frame.h), so it never returns wrong bytes.
//
// Thread safety: any thread. Concurrent calls need different Bounce objects. Calls block on I/O.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "system/file_ops.h"
#include "tier/object_frame.h"

namespace kvc {

// Says whether a store waits until its data is on the disk, and what a loss of power can destroy.
enum class DiskSync {
  kNever,  // after a loss of power, an object may be gone or damaged. Its checksum shows the damage
  kData,   // a file is on the disk before it is renamed: an object may be gone, but not damaged
  kFull    // the name is on the disk too: an object is not lost after its store completed
};

// A buffer that direct I/O can use, and the state of a running checksum.
class Bounce {
 public:
  static constexpr int64_t kBytes = (int64_t{2} << 20) + kFrameBlockBytes;  // one transfer for an object of 2 MiB

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
  // Opens a directory, and creates it if it is missing. Refuses a directory that has files but no marker of a tier.
  static Status open(const std::string& path, DiskSync sync, FileOps& ops, std::unique_ptr<ObjectFolder>* folder);
  ~ObjectFolder();
  ObjectFolder(const ObjectFolder&) = delete;
  ObjectFolder& operator=(const ObjectFolder&) = delete;

  void forget_descriptors() noexcept;  // closes the descriptors; for a child of fork()

  // Returns whether the file system or its permissions forbid writes.
  bool read_only() const noexcept { return read_only_; }
  bool direct() const noexcept { return direct_; }  // whether direct I/O is used

  // The result of an operation on an object: a KVC_TIER_* code, and the errno of FAILED.
  struct Outcome {
    int32_t result = KVC_TIER_OK;
    int32_t os_error = 0;
    bool damaged = false;  // the file has wrong bytes or cannot be read, so the caller should remove it
  };

  // Renames the file of an evicted object, so that `write` can overwrite it. Overwriting a file is many times faster
  // than creating one. Always fails in the modes kData and kFull: in these modes, the old name must never lead to
  // the new bytes after a loss of power.
  //   name   out: the temporary name that the file has now, for `write`; empty on failure
  bool recycle(const kvc_tier_key& key, int64_t payload_bytes, std::string* name);
  void discard(const std::string& name);  // removes a temporary file

  // Writes an object to a file in tmp/. On failure, no file is left.
  //   name   in: a recycled file of the same size, or empty; out: the temporary name
  Outcome write(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce, std::string* name);
  // Gives a written file its final name. If the rename fails, removes the file. With kFull, also fails if the name
  // cannot be written to the disk. The file then keeps its final name.
  Outcome publish(const std::string& name, const kvc_tier_key& key, int64_t payload_bytes);
  // Reads an object into the item's buffers. stamp_ns: the new stamp of the file; 0 = do not change it.
  Outcome read(const kvc_tier_item& item, int64_t stamp_ns, Bounce& bounce);
  // The parts of read, for a caller that reads several files at once. name: object_name of the item.
  // Opens the file. Returns a descriptor, or -1 and the outcome.
  int open_object(const std::string& name, Outcome* outcome);
  // Whether it is a file of the right size, so that it may be read.
  bool is_readable(int fd, const kvc_tier_item& item);
  // What the caller has done before read_opened.
  struct Begun {
    bool checked = false;  // is_readable was true
    int64_t had = 0;  // the number of bytes at the begin of the file that were read, or the negative errno of a read
  };
  // Reads and checks the object, and closes the descriptor. memory: aligned for direct I/O, with room for the file or
  // for Bounce::kBytes of it.
  Outcome read_opened(int fd, const std::string& name, const kvc_tier_item& item, int64_t stamp_ns, uint8_t* memory,
                      const Begun& begun, RunningChecksum& sum);

  // Return 0 or a negative errno.
  int remove(const kvc_tier_key& key, int64_t payload_bytes);
  int status(const kvc_tier_key& key, int64_t payload_bytes, FileStatus* status);
  // Calls found(key, payload_bytes) for the objects of one of the 256 folders. Ignores other files.
  int list(int folder, const std::function<void(const kvc_tier_key& key, int64_t payload_bytes)>& found);
  // Returns the time of the folder's last change, or 0.
  int64_t folder_stamp_ns(int folder);

 private:
  ObjectFolder(DiskSync sync, FileOps& ops) noexcept : sync_(sync), ops_(ops) {}
  Status check_marker(const std::string& path);
  Status lock_and_clean();
  void probe_direct();
  std::string temporary_name();
  int open_temporary(int64_t stamp_ns, std::string* name);
  int write_frame(int fd, const kvc_tier_item& item, Bounce& bounce);
  Outcome read_frame(int fd, const kvc_tier_item& item, uint8_t* memory, const Begun& begun, RunningChecksum& sum);
  int sync_name(const char* folder);

  const DiskSync sync_;
  FileOps& ops_;
  int root_ = -1;    // the directory
  int marker_ = -1;  // descriptor of kvcache-tier, which holds the lock
  bool read_only_ = false;
  bool direct_ = false;
  std::string own_names_;  // a prefix for names in tmp/ that no other process or tier has
  std::atomic<uint64_t> next_name_{0};
};

}  // namespace kvc

// FileOps: makes the system calls of the disk tier on files, except for locks. Tests override single functions, so that
// the N-th call fails or writes only a part of the bytes.
//
// Every function except `close` returns a negative errno if it fails, and repeats a system call that a signal
// interrupted. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

namespace kvc {

struct FileStatus {
  int64_t bytes = 0;
  int64_t stamp_ns = 0;  // time of the last change since 1970; 0 if it is before 1970, or 9e9 seconds or more after
  bool regular = false;
  uint64_t inode = 0;  // two names with the same inode are one file
};

class FileOps {
 public:
  FileOps() = default;
  virtual ~FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;

  virtual int open_at(int folder, const char* name, int flags, mode_t mode);
  virtual void close(int fd);
  // read_at and write_at make one system call, so they may transfer fewer bytes than requested.
  virtual int64_t read_at(int fd, void* data, int64_t bytes, int64_t offset);
  virtual int64_t write_at(int fd, const void* data, int64_t bytes, int64_t offset);
  virtual int sync_data(int fd);    // fdatasync
  virtual int sync_folder(int fd);  // fsync
  virtual int rename_at(int folder, const char* from, const char* to);
  virtual int unlink_at(int folder, const char* name);
  virtual int make_folder_at(int folder, const char* name);
  virtual int status(int fd, FileStatus* status);
  virtual int status_at(int folder, const char* name, FileStatus* status);
  virtual int set_stamp(int fd, int64_t stamp_ns);
  // Calls found(name) for each entry except . and .., in the order of the file system.
  virtual int list(int folder, const std::function<void(const char* name)>& found);
};

// Returns the operations that make system calls. The object has no state.
FileOps& system_file_ops() noexcept;

}  // namespace kvc

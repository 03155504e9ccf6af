// FileOps: makes system calls on files. Tests override single functions, so that the N-th call fails or writes only a
// part of the bytes.
//
// Names are in UTF-8. A name is relative to a folder, which open_at has opened, or to the working folder of the process
// (kWorkingFolder). Every function of FileOps returns a negative errno if it fails. Every function except `close`
// repeats a system call that a signal interrupted. Thread safety: any thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>

#include "system/read_ring.h"

namespace kvc {

// How open_at opens a file: kOpenRead, kOpenWrite or both, and any of the others.
enum OpenFlag : int {
  kOpenRead = 1 << 0,
  kOpenWrite = 1 << 1,
  kOpenCreate = 1 << 2,  // creates the file if it is missing
  kOpenNew = 1 << 3,     // creates the file, and fails with EEXIST if the name exists
  kOpenFolder = 1 << 4,  // opens a folder
  kOpenPlain = 1 << 5,   // fails with ELOOP if the name belongs to a link, and does not wait if it belongs to a pipe
  kOpenDirect = 1 << 6   // reads and writes whole blocks, without the system's cache; fails with EINVAL if the file
                         // system cannot do that
};

struct FileStatus {
  int64_t bytes = 0;
  int64_t stamp_ns = 0;  // time of the last change, in ns since 1970; 0 if this time is before 1970, or at least
                         // 9e9 seconds after 1970
  bool regular = false;
  uint64_t inode = 0;  // in one file system, two names with the same inode are one file
};

class FileOps {
 public:
  FileOps() = default;
  virtual ~FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;

  static constexpr int kWorkingFolder = -1000;

  // flags: OpenFlag values; mode: permissions of a new file
  virtual int open_at(int folder, const char* name, int flags, mode_t mode);
  virtual int close(int fd);
  // read_at and write_at make one system call, so they may transfer fewer bytes than requested.
  virtual int64_t read_at(int fd, void* data, int64_t bytes, int64_t offset);
  virtual int64_t write_at(int fd, const void* data, int64_t bytes, int64_t offset);
  // As ReadRing::read. The results may be fewer bytes than requested, and -EAGAIN where read_at would work.
  virtual void read_many(ReadRing& ring, FileRead* reads, int n, const std::function<void(int)>& done);
  virtual int sync_data(int fd);    // waits until the file's bytes are on the disk
  virtual int sync_folder(int fd);  // waits until the folder's names are on the disk
  virtual int rename_at(int folder, const char* from, const char* to);  // replaces `to`
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

// Reads the next bytes of a file or pipe. Returns 0 at its end.
int64_t read_next(int fd, void* data, int64_t bytes) noexcept;

// Locks an open file against other processes and other descriptors of this process, without waiting. A shared lock
// replaces an exclusive one of the same descriptor, and the other way round. -EWOULDBLOCK: another descriptor has the
// lock.
int lock_file(int fd, bool exclusive) noexcept;

// What a negative errno of FileOps means.
bool says_missing(int64_t error) noexcept;    // the file does not exist
bool says_damaged(int64_t error) noexcept;    // the file is damaged, so a later read would fail too
bool says_not_plain(int64_t error) noexcept;  // the name belongs to a link, a socket or a pipe

}  // namespace kvc

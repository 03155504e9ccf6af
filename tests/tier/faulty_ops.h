// System calls of a disk tier that fail, or transfer only a part, as a test chooses.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "system/file_ops.h"

namespace kvt {

class FaultyOps : public kvc::FileOps {
 public:
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> fail_from{-1};  // the number of the first call that fails; -1 = none
  std::atomic<int64_t> fail_count{1};  // how many calls fail from there on
  std::atomic<int> error{EIO};
  std::atomic<int64_t> room_bytes{INT64_MAX};  // free bytes on the disk
  std::atomic<bool> short_transfers{false};    // reads and writes move one block at a time
  std::atomic<bool> ring_is_full{false};       // read_many starts no read
  std::atomic<int64_t> read_together{0};       // files that read_many has read

  int open_at(int folder, const char *name, int flags, mode_t mode) override {
    return fails() ? -error : FileOps::open_at(folder, name, flags, mode);
  }
  int64_t read_at(int fd, void *data, int64_t bytes, int64_t offset) override {
    return fails() ? -error : FileOps::read_at(fd, data, limit(bytes), offset);
  }
  int64_t write_at(int fd, const void *data, int64_t bytes, int64_t offset) override {
    if (fails()) return -error;
    bytes = limit(bytes);
    const int64_t fit = std::min(bytes, room_bytes.load() / 4096 * 4096);
    if (fit == 0) return -ENOSPC;
    const int64_t put = FileOps::write_at(fd, data, fit, offset);
    if (put > 0) room_bytes -= put;
    return put;
  }
  void read_many(kvc::ReadRing &ring, kvc::FileRead *reads, int n, const std::function<void(int)> &done) override {
    for (int i = 0; i < n; ++i) reads[i].bytes = limit(reads[i].bytes);
    if (ring_is_full) {
      for (int i = 0; i < n; ++i) {
        reads[i].result = -EAGAIN;
        done(i);
      }
      return;
    }
    FileOps::read_many(ring, reads, n, [&](int i) {
      if (fails()) reads[i].result = -error;
      ++read_together;
      done(i);
    });
  }
  int sync_data(int fd) override { return fails() ? -error : FileOps::sync_data(fd); }
  int sync_folder(int fd) override { return fails() ? -error : FileOps::sync_folder(fd); }
  int rename_at(int folder, const char *from, const char *to) override {
    return fails() ? -error : FileOps::rename_at(folder, from, to);
  }
  int unlink_at(int folder, const char *name) override { return fails() ? -error : FileOps::unlink_at(folder, name); }
  int make_folder_at(int folder, const char *name) override {
    return fails() ? -error : FileOps::make_folder_at(folder, name);
  }
  int status(int fd, kvc::FileStatus *status) override { return fails() ? -error : FileOps::status(fd, status); }
  int status_at(int folder, const char *name, kvc::FileStatus *status) override {
    return fails() ? -error : FileOps::status_at(folder, name, status);
  }
  int set_stamp(int fd, int64_t stamp_ns) override { return fails() ? -error : FileOps::set_stamp(fd, stamp_ns); }
  int list(int folder, const std::function<void(const char *name)> &found) override {
    return fails() ? -error : FileOps::list(folder, found);
  }

 private:
  bool fails() {
    const int64_t number = calls++, from = fail_from;
    return from >= 0 && number >= from && number < from + fail_count;
  }
  int64_t limit(int64_t bytes) const { return short_transfers ? std::min<int64_t>(bytes, 4096) : bytes; }
};

}  // namespace kvt

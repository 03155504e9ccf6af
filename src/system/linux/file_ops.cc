#include "system/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace kvc {
namespace {

// Returns the result of a system call, or -errno. Repeats a call that a signal interrupted.
template <typename Call>
auto checked(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

FileStatus translate(const struct stat& from) {
  FileStatus to;
  to.bytes = from.st_size;
  to.regular = S_ISREG(from.st_mode);
  to.inode = from.st_ino;
  constexpr int64_t kLastSecond = 9'000'000'000;  // in the year 2255; soon after it, nanoseconds do not fit in int64_t
  if (from.st_mtim.tv_sec > 0 && from.st_mtim.tv_sec < kLastSecond) {
    to.stamp_ns = int64_t{from.st_mtim.tv_sec} * 1'000'000'000 + from.st_mtim.tv_nsec;
  }
  return to;
}

int system_flags(int flags) {
  int to = O_CLOEXEC;
  to |= (flags & kOpenWrite) == 0 ? O_RDONLY : (flags & kOpenRead) == 0 ? O_WRONLY : O_RDWR;
  if ((flags & kOpenCreate) != 0) to |= O_CREAT;
  if ((flags & kOpenNew) != 0) to |= O_CREAT | O_EXCL;
  if ((flags & kOpenFolder) != 0) to |= O_DIRECTORY;
  if ((flags & kOpenPlain) != 0) to |= O_NOFOLLOW | O_NONBLOCK;
  if ((flags & kOpenDirect) != 0) to |= O_DIRECT;
  return to;
}

int system_folder(int folder) { return folder == FileOps::kWorkingFolder ? AT_FDCWD : folder; }

}  // namespace

int FileOps::open_at(int folder, const char* name, int flags, mode_t mode) {
  return checked([&] { return ::openat(system_folder(folder), name, system_flags(flags), mode); });
}

int FileOps::close(int fd) { return ::close(fd) == 0 ? 0 : -errno; }

int64_t FileOps::read_at(int fd, void* data, int64_t bytes, int64_t offset) {
  return checked([&] { return int64_t{::pread(fd, data, static_cast<size_t>(bytes), offset)}; });
}

int64_t FileOps::write_at(int fd, const void* data, int64_t bytes, int64_t offset) {
  return checked([&] { return int64_t{::pwrite(fd, data, static_cast<size_t>(bytes), offset)}; });
}

void FileOps::read_many(ReadRing& ring, FileRead* reads, int n, const std::function<void(int)>& done) {
  ring.read(reads, n, done);
}

int FileOps::sync_data(int fd) {
  return checked([&] { return ::fdatasync(fd); });
}

int FileOps::sync_folder(int fd) {
  return checked([&] { return ::fsync(fd); });
}

int FileOps::rename_at(int folder, const char* from, const char* to) {
  return checked([&] { return ::renameat(system_folder(folder), from, system_folder(folder), to); });
}

int FileOps::unlink_at(int folder, const char* name) {
  return checked([&] { return ::unlinkat(system_folder(folder), name, 0); });
}

int FileOps::make_folder_at(int folder, const char* name) {
  return checked([&] { return ::mkdirat(system_folder(folder), name, 0700); });
}

int FileOps::status(int fd, FileStatus* status) {
  struct stat found;
  const int result = checked([&] { return ::fstat(fd, &found); });
  if (result == 0) *status = translate(found);
  return result;
}

int FileOps::status_at(int folder, const char* name, FileStatus* status) {
  struct stat found;
  const int result = checked([&] { return ::fstatat(system_folder(folder), name, &found, AT_SYMLINK_NOFOLLOW); });
  if (result == 0) *status = translate(found);
  return result;
}

int FileOps::set_stamp(int fd, int64_t stamp_ns) {
  const timespec stamp = {stamp_ns / 1'000'000'000, stamp_ns % 1'000'000'000};
  const timespec times[2] = {{0, UTIME_OMIT}, stamp};
  return checked([&] { return ::futimens(fd, times); });
}

int FileOps::list(int folder, const std::function<void(const char* name)>& found) {
  // This function opens its own descriptor, because copies of a descriptor share one position.
  const int own = open_at(folder, ".", kOpenRead | kOpenFolder, 0);
  if (own < 0) return own;
  DIR* stream = ::fdopendir(own);
  if (!stream) {
    const int error = errno;
    close(own);
    return -error;
  }
  int result = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream);
    if (!entry) {
      result = -errno;
      break;
    }
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) found(entry->d_name);
  }
  ::closedir(stream);
  return result;
}

FileOps& system_file_ops() noexcept {
  // The object is never destroyed, because the library runs no code at exit.
  alignas(FileOps) static unsigned char memory[sizeof(FileOps)];
  static FileOps& ops = *new (memory) FileOps;
  return ops;
}

int64_t read_next(int fd, void* data, int64_t bytes) noexcept {
  return checked([&] { return int64_t{::read(fd, data, static_cast<size_t>(bytes))}; });
}

int lock_file(int fd, bool exclusive) noexcept {
  return checked([&] { return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB); });
}

bool says_missing(int64_t error) noexcept { return error == -ENOENT || error == -ENOTDIR || error == -ESTALE; }

bool says_damaged(int64_t error) noexcept { return error == -EIO || error == -EBADMSG || error == -EUCLEAN; }

bool says_not_plain(int64_t error) noexcept { return error == -ELOOP || error == -ENXIO; }

}  // namespace kvc

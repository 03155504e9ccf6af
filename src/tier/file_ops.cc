#include "tier/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
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

}  // namespace

int FileOps::open_at(int folder, const char* name, int flags, mode_t mode) {
  return checked([&] { return ::openat(folder, name, flags | O_CLOEXEC, mode); });
}

void FileOps::close(int fd) { ::close(fd); }

int64_t FileOps::read_at(int fd, void* data, int64_t bytes, int64_t offset) {
  return checked([&] { return int64_t{::pread(fd, data, static_cast<size_t>(bytes), offset)}; });
}

int64_t FileOps::write_at(int fd, const void* data, int64_t bytes, int64_t offset) {
  return checked([&] { return int64_t{::pwrite(fd, data, static_cast<size_t>(bytes), offset)}; });
}

int FileOps::sync_data(int fd) {
  return checked([&] { return ::fdatasync(fd); });
}

int FileOps::sync_folder(int fd) {
  return checked([&] { return ::fsync(fd); });
}

int FileOps::rename_at(int folder, const char* from, const char* to) {
  return checked([&] { return ::renameat(folder, from, folder, to); });
}

int FileOps::unlink_at(int folder, const char* name) {
  return checked([&] { return ::unlinkat(folder, name, 0); });
}

int FileOps::make_folder_at(int folder, const char* name) {
  return checked([&] { return ::mkdirat(folder, name, 0700); });
}

int FileOps::status(int fd, FileStatus* status) {
  struct stat found;
  const int result = checked([&] { return ::fstat(fd, &found); });
  if (result == 0) *status = translate(found);
  return result;
}

int FileOps::status_at(int folder, const char* name, FileStatus* status) {
  struct stat found;
  const int result = checked([&] { return ::fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW); });
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
  const int own = open_at(folder, ".", O_RDONLY | O_DIRECTORY, 0);
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

}  // namespace kvc

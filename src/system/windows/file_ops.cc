// Files by Windows' own functions. Files are opened so that others may read, write, rename and remove them. But no
// rename can replace a file that is open.
#include "system/file_ops.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "system/windows/handle.h"
#include "system/windows/wide.h"

namespace kvc {
namespace {

constexpr DWORD kShareAll = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;

// Returns a negative errno for the latest error of the thread. An error that is not listed must not mean a damaged
// file, because the disk tier removes damaged files.
int last_error() noexcept {
  static constexpr struct {
    DWORD code;
    int error;
  } kErrors[] = {
      {ERROR_FILE_NOT_FOUND, ENOENT},
      {ERROR_PATH_NOT_FOUND, ENOENT},
      {ERROR_INVALID_NAME, ENOENT},
      {ERROR_BAD_NETPATH, ENOENT},
      {ERROR_ACCESS_DENIED, EACCES},
      {ERROR_SHARING_VIOLATION, EBUSY},
      {ERROR_FILE_EXISTS, EEXIST},
      {ERROR_ALREADY_EXISTS, EEXIST},
      {ERROR_DISK_FULL, ENOSPC},
      {ERROR_HANDLE_DISK_FULL, ENOSPC},
      {ERROR_WRITE_PROTECT, EROFS},
      {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
      {ERROR_OUTOFMEMORY, ENOMEM},
      {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
      {ERROR_IO_PENDING, EWOULDBLOCK},
      {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
      {ERROR_INVALID_HANDLE, EBADF},
      {ERROR_DIRECTORY, ENOTDIR},
      {ERROR_CRC, EIO},
      {ERROR_IO_DEVICE, EIO},
      {ERROR_FILE_CORRUPT, EBADMSG},
      {ERROR_NOT_SUPPORTED, ENOTSUP},
      {ERROR_CALL_NOT_IMPLEMENTED, ENOTSUP},
  };
  const DWORD code = GetLastError();
  for (const auto& known : kErrors) {
    if (known.code == code) return -known.error;
  }
  return -EINVAL;
}

int result_of(BOOL done) noexcept { return done ? 0 : last_error(); }

// Writes the path of a name to *path. Returns 0 or a negative errno.
int find_path(int folder, const char* name, std::wstring* path) noexcept try {
  path->clear();
  if (folder != FileOps::kWorkingFolder) {
    path->resize(GetFinalPathNameByHandleW(handle_of(folder), nullptr, 0, 0));  // with the final zero
    const DWORD length =
        GetFinalPathNameByHandleW(handle_of(folder), path->data(), static_cast<DWORD>(path->size()), 0);
    if (length == 0) return last_error();
    if (length >= path->size()) return -ENOENT;  // another process has renamed the folder
    path->resize(length);
    path->push_back(L'\\');
  }
  *path += to_wide(name);
  std::replace(path->begin(), path->end(), L'/', L'\\');
  return 0;
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

constexpr int64_t kTo1970 = 116'444'736'000'000'000;  // from 1601, in the 100 ns of a FILETIME

FileStatus translate(const BY_HANDLE_FILE_INFORMATION& from) noexcept {
  const auto join = [](DWORD high, DWORD low) { return static_cast<int64_t>(uint64_t{high} << 32 | low); };
  FileStatus to;
  to.bytes = join(from.nFileSizeHigh, from.nFileSizeLow);
  to.regular = (from.dwFileAttributes & (FILE_ATTRIBUTE_DIRECTORY | FILE_ATTRIBUTE_REPARSE_POINT)) == 0;
  to.inode = static_cast<uint64_t>(join(from.nFileIndexHigh, from.nFileIndexLow));
  constexpr int64_t kLast = 90'000'000'000'000'000;  // in the year 2255; later times do not fit in nanoseconds
  const int64_t time = join(from.ftLastWriteTime.dwHighDateTime, from.ftLastWriteTime.dwLowDateTime) - kTo1970;
  if (time > 0 && time < kLast) to.stamp_ns = time * 100;
  return to;
}

// Opens a file, and checks its kind. A file that is only read may get a new stamp, if its permissions allow that.
int open_path(const std::wstring& path, int flags) noexcept {
  const DWORD disposition = (flags & kOpenNew) != 0      ? CREATE_NEW
                            : (flags & kOpenCreate) != 0 ? OPEN_ALWAYS
                                                         : OPEN_EXISTING;
  DWORD access = 0, how = FILE_FLAG_BACKUP_SEMANTICS;  // which opens folders too
  if ((flags & kOpenRead) != 0) access |= GENERIC_READ;
  if ((flags & kOpenWrite) != 0) access |= GENERIC_WRITE;
  if ((flags & kOpenPlain) != 0) how |= FILE_FLAG_OPEN_REPARSE_POINT;
  if ((flags & kOpenDirect) != 0) how |= FILE_FLAG_NO_BUFFERING;
  const auto open = [&](DWORD rights) {
    return CreateFileW(path.c_str(), rights, kShareAll, nullptr, disposition, how, nullptr);
  };
  HANDLE handle = open(access | FILE_WRITE_ATTRIBUTES);
  if (handle == INVALID_HANDLE_VALUE && GetLastError() == ERROR_ACCESS_DENIED) handle = open(access);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  BY_HANDLE_FILE_INFORMATION found = {};
  int error = 0;
  if ((flags & (kOpenFolder | kOpenPlain)) != 0) error = result_of(GetFileInformationByHandle(handle, &found));
  if ((flags & kOpenFolder) != 0 && (found.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0) error = -ENOTDIR;
  if ((flags & kOpenPlain) != 0 && (found.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0) error = -ELOOP;
  if (error == 0) return descriptor_of(handle);
  CloseHandle(handle);
  return error;
}

OVERLAPPED at_offset(int64_t offset) noexcept {
  OVERLAPPED at = {};
  at.Offset = static_cast<DWORD>(offset);
  at.OffsetHigh = static_cast<DWORD>(offset >> 32);
  return at;
}

DWORD most_bytes(int64_t bytes) noexcept { return static_cast<DWORD>(std::min<int64_t>(bytes, 1 << 30)); }

int64_t read_bytes(int fd, void* data, int64_t bytes, OVERLAPPED* at) noexcept {
  DWORD count = 0;
  if (ReadFile(handle_of(fd), data, most_bytes(bytes), &count, at)) return count;
  const DWORD code = GetLastError();
  return code == ERROR_HANDLE_EOF || code == ERROR_BROKEN_PIPE ? 0 : last_error();
}

}  // namespace

// A new file has the permissions that its folder gives to its files.
int FileOps::open_at(int folder, const char* name, int flags, mode_t) {
  std::wstring path;
  const int error = find_path(folder, name, &path);
  return error == 0 ? open_path(path, flags) : error;
}

int FileOps::close(int fd) { return result_of(CloseHandle(handle_of(fd))); }

int64_t FileOps::read_at(int fd, void* data, int64_t bytes, int64_t offset) {
  OVERLAPPED at = at_offset(offset);
  return read_bytes(fd, data, bytes, &at);
}

int64_t FileOps::write_at(int fd, const void* data, int64_t bytes, int64_t offset) {
  OVERLAPPED at = at_offset(offset);
  DWORD count = 0;
  if (!WriteFile(handle_of(fd), data, most_bytes(bytes), &count, &at)) return last_error();
  return count;
}

void FileOps::read_many(ReadRing& ring, FileRead* reads, int n, const std::function<void(int)>& done) {
  ring.read(reads, n, done);
}

int FileOps::sync_data(int fd) { return result_of(FlushFileBuffers(handle_of(fd))); }

int FileOps::sync_folder(int) { return 0; }  // rename_at waits until the name is on the disk

// While the target is open, the rename fails, so it is tried again for some time (20 ms, or 300 ms with the usual timer
// of the system). Loads and virus scanners close files sooner.
int FileOps::rename_at(int folder, const char* from, const char* to) {
  std::wstring old_path, new_path;
  if (const int error = find_path(folder, from, &old_path); error != 0) return error;
  if (const int error = find_path(folder, to, &new_path); error != 0) return error;
  constexpr DWORD kHow = MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH;
  for (int tries = 1;; ++tries) {
    const int error = result_of(MoveFileExW(old_path.c_str(), new_path.c_str(), kHow));
    if ((error != -EACCES && error != -EBUSY) || tries == 20) return error;
    Sleep(1);
  }
}

int FileOps::unlink_at(int folder, const char* name) {
  std::wstring path;
  const int error = find_path(folder, name, &path);
  return error == 0 ? result_of(DeleteFileW(path.c_str())) : error;
}

int FileOps::make_folder_at(int folder, const char* name) {
  std::wstring path;
  const int error = find_path(folder, name, &path);
  return error == 0 ? result_of(CreateDirectoryW(path.c_str(), nullptr)) : error;
}

int FileOps::status(int fd, FileStatus* status) {
  BY_HANDLE_FILE_INFORMATION found;
  const int error = result_of(GetFileInformationByHandle(handle_of(fd), &found));
  if (error == 0) *status = translate(found);
  return error;
}

int FileOps::status_at(int folder, const char* name, FileStatus* status) {
  std::wstring path;
  if (const int error = find_path(folder, name, &path); error != 0) return error;
  const HANDLE handle = CreateFileW(path.c_str(), FILE_READ_ATTRIBUTES, kShareAll, nullptr, OPEN_EXISTING,
                                    FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  if (handle == INVALID_HANDLE_VALUE) return last_error();
  BY_HANDLE_FILE_INFORMATION found;
  const int error = result_of(GetFileInformationByHandle(handle, &found));
  if (error == 0) *status = translate(found);
  CloseHandle(handle);
  return error;
}

int FileOps::set_stamp(int fd, int64_t stamp_ns) {
  const int64_t time = stamp_ns / 100 + kTo1970;
  const FILETIME stamp = {static_cast<DWORD>(time), static_cast<DWORD>(time >> 32)};
  return result_of(SetFileTime(handle_of(fd), nullptr, nullptr, &stamp));
}

int FileOps::list(int folder, const std::function<void(const char* name)>& found) {
  std::wstring pattern;
  if (const int error = find_path(folder, "*", &pattern); error != 0) return error;
  WIN32_FIND_DATAW entry;
  const HANDLE search = FindFirstFileW(pattern.c_str(), &entry);
  if (search == INVALID_HANDLE_VALUE) return last_error();
  int result = 0;
  try {
    do {
      const std::string name = to_utf8(entry.cFileName);
      if (name != "." && name != "..") found(name.c_str());
    } while (FindNextFileW(search, &entry));
    if (GetLastError() != ERROR_NO_MORE_FILES) result = last_error();
  } catch (...) {
    FindClose(search);
    throw;
  }
  FindClose(search);
  return result;
}

FileOps& system_file_ops() noexcept {
  // The object is never destroyed, because the library runs no code at exit.
  alignas(FileOps) static unsigned char memory[sizeof(FileOps)];
  static FileOps& ops = *new (memory) FileOps;
  return ops;
}

int64_t read_next(int fd, void* data, int64_t bytes) noexcept { return read_bytes(fd, data, bytes, nullptr); }

// Windows does not let others read or write locked bytes. So the lock has a byte that no file contains.
int lock_file(int fd, bool exclusive) noexcept {
  OVERLAPPED at = at_offset(INT64_MAX - 1);
  UnlockFileEx(handle_of(fd), 0, 1, 0, &at);  // fails if this descriptor holds no lock yet
  const DWORD how = LOCKFILE_FAIL_IMMEDIATELY | (exclusive ? LOCKFILE_EXCLUSIVE_LOCK : 0);
  return result_of(LockFileEx(handle_of(fd), how, 0, 1, 0, &at));
}

bool says_missing(int64_t error) noexcept { return error == -ENOENT || error == -ENOTDIR; }

bool says_damaged(int64_t error) noexcept { return error == -EIO || error == -EBADMSG; }

bool says_not_plain(int64_t error) noexcept { return error == -ELOOP; }

}  // namespace kvc

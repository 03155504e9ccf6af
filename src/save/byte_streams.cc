#include "save/byte_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace kvc {
namespace {

// Makes the names of temporary files unique in the process.
constinit std::atomic<uint32_t> next_number{0};

Status io_error(const char* what, const std::string& path) {
  const int code = errno;
  char text[128];
  // The GNU strerror_r returns the text. It does not always write it into `text`.
  return Status::error(KVC_ERROR_IO, "%s %.200s: %s", what, path.c_str(), strerror_r(code, text, sizeof text));
}

Status ended(size_t missing) { return Status::error(KVC_ERROR_CORRUPT, "the data ends %zu bytes too early", missing); }

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

Status FileSink::open(const char* path) {
  path_ = path;
  for (int tries = 0; tries < 100; ++tries) {
    const uint32_t number = next_number.fetch_add(1, std::memory_order_relaxed);
    temporary_ = path_ + "." + std::to_string(getpid()) + "." + std::to_string(number) + ".tmp";
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ >= 0) return Status();
    if (errno != EEXIST) break;  // EEXIST: a killed process with the same id left this file
  }
  Status failed = io_error("cannot create", temporary_);
  temporary_.clear();
  return failed;
}

FileSink::~FileSink() {
  if (file_ >= 0) close(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status FileSink::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_, bytes.data(), bytes.size());
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return io_error("cannot write", temporary_);
    }
  }
  return Status();
}

Status FileSink::commit() {
  if (fsync(file_) != 0) return io_error("cannot synchronise", temporary_);
  const int written = file_;
  file_ = -1;
  if (close(written) != 0) return io_error("cannot close", temporary_);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return io_error("cannot rename a new file to", path_);
  temporary_.clear();
  // The new name is safe on the disk only after its folder was synchronised. Some file systems cannot synchronise a
  // folder.
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Status();
  const bool done = fsync(folder) == 0 || errno == EINVAL || errno == ENOTSUP;
  Status status = done ? Status() : io_error("cannot synchronise the folder of", path_);
  close(folder);
  return status;
}

Status FileSource::open(const char* path) {
  file_ = ::open(path, O_RDONLY | O_CLOEXEC);
  return file_ >= 0 ? Status() : io_error("cannot open", path);
}

FileSource::~FileSource() {
  if (file_ >= 0) close(file_);
}

// Reads fewer than bytes.size() bytes only at the end of the file.
Status FileSource::read_some(std::span<uint8_t> bytes, size_t* count) {
  *count = 0;
  while (*count < bytes.size()) {
    const ssize_t read = ::read(file_, bytes.data() + *count, bytes.size() - *count);
    if (read == 0) break;
    if (read < 0 && errno != EINTR) return io_error("cannot read", "the saved sequence");
    if (read > 0) *count += static_cast<size_t>(read);
  }
  return Status();
}

Status FileSource::read(std::span<uint8_t> bytes) {
  size_t count = 0;
  KVC_TRY(read_some(bytes, &count));
  return count == bytes.size() ? Status() : ended(bytes.size() - count);
}

Status FileSource::check_end() {
  uint8_t more = 0;
  size_t count = 0;
  KVC_TRY(read_some({&more, 1}, &count));
  return count == 0 ? Status() : Status::error(KVC_ERROR_CORRUPT, "the file goes on after the saved sequence");
}

Status CallbackSink::write(std::span<const uint8_t> bytes) {
  const int32_t failed = write_(user_, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (failed == 0) return Status();
  return Status::error(KVC_ERROR_IO, "write returned %d for %zu bytes", failed, bytes.size());
}

Status CallbackSource::read(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto size = static_cast<int64_t>(bytes.size());
    const int64_t count = read_(user_, bytes.data(), size);
    if (count < 0 || count > size) {
      return Status::error(KVC_ERROR_IO, "read returned %" PRId64 " for %" PRId64 " bytes", count, size);
    }
    if (count == 0) return ended(bytes.size());
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return Status();
}

}  // namespace kvc

#include "save/byte_streams.h"

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <utility>

#include "system/error_text.h"
#include "system/process.h"

namespace kvc {
namespace {

// Makes the names of temporary files unique in the process.
constinit std::atomic<uint32_t> next_number{0};

// error: a negative errno
Status io_error(const char* what, const std::string& path, int64_t error) {
  const std::string why = error_text(static_cast<int>(-error));
  return Status::error(KVC_ERROR_IO, "%s %.200s: %s", what, path.c_str(), why.c_str());
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
    temporary_ = path_ + "." + std::to_string(process_id()) + "." + std::to_string(number) + ".tmp";
    file_ = ops_.open_at(FileOps::kWorkingFolder, temporary_.c_str(), kOpenWrite | kOpenNew, 0666);
    if (file_ >= 0) return Status();
    if (file_ != -EEXIST) break;  // EEXIST: a killed process with the same id left this file
  }
  Status failed = io_error("cannot create", temporary_, file_);
  temporary_.clear();
  return failed;
}

FileSink::~FileSink() {
  if (file_ >= 0) ops_.close(file_);
  if (!temporary_.empty()) ops_.unlink_at(FileOps::kWorkingFolder, temporary_.c_str());
}

Status FileSink::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const int64_t count = ops_.write_at(file_, bytes.data(), static_cast<int64_t>(bytes.size()), written_);
    if (count <= 0) return io_error("cannot write", temporary_, count < 0 ? count : -ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(count));
    written_ += count;
  }
  return Status();
}

Status FileSink::commit() {
  int error = ops_.sync_data(file_);
  if (error != 0) return io_error("cannot synchronise", temporary_, error);
  error = ops_.close(std::exchange(file_, -1));
  if (error != 0) return io_error("cannot close", temporary_, error);
  error = ops_.rename_at(FileOps::kWorkingFolder, temporary_.c_str(), path_.c_str());
  if (error != 0) return io_error("cannot rename a new file to", path_, error);
  temporary_.clear();
  // The new name is safe on the disk only after its folder was synchronised. Some file systems cannot synchronise a
  // folder.
  const int folder = ops_.open_at(FileOps::kWorkingFolder, folder_of(path_).c_str(), kOpenRead | kOpenFolder, 0);
  if (folder < 0) return Status();
  error = ops_.sync_folder(folder);
  ops_.close(folder);
  const bool done = error == 0 || error == -EINVAL || error == -ENOTSUP;
  return done ? Status() : io_error("cannot synchronise the folder of", path_, error);
}

Status FileSource::open(const char* path) {
  file_ = ops_.open_at(FileOps::kWorkingFolder, path, kOpenRead, 0);
  return file_ >= 0 ? Status() : io_error("cannot open", path, file_);
}

FileSource::~FileSource() {
  if (file_ >= 0) ops_.close(file_);
}

// Reads fewer than bytes.size() bytes only at the end of the file.
Status FileSource::read_some(std::span<uint8_t> bytes, size_t* count) {
  *count = 0;
  while (*count < bytes.size()) {
    const int64_t read = read_next(file_, bytes.data() + *count, static_cast<int64_t>(bytes.size() - *count));
    if (read == 0) break;
    if (read < 0) return io_error("cannot read", "the saved sequence", read);
    *count += static_cast<size_t>(read);
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

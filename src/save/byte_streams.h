// Writes the bytes of a saved sequence to a file or to a callback of the caller, and reads them from a file or a
// callback.
//
// A file is written as a whole or not at all. FileSink writes to a new file in the same folder. commit synchronises
// this file with the disk, renames it, and synchronises the folder. Without commit, the destructor removes the new
// file. If the process is killed, the new file stays with a name that ends in .tmp, and the old file is unchanged.
// Thread safety: none. Errors of the system and of callbacks have status IO, with the reason in the message.
#pragma once

#include <string>

#include "kvcache.h"
#include "object/payload_sections.h"
#include "system/file_ops.h"

namespace kvc {

class FileSink : public ByteSink {
 public:
  FileSink() = default;
  ~FileSink() override;
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  Status open(const char* path);
  Status write(std::span<const uint8_t> bytes) override;
  Status commit();

 private:
  FileOps& ops_ = system_file_ops();
  std::string path_, temporary_;
  int file_ = -1;
  int64_t written_ = 0;
};

class FileSource : public ByteSource {
 public:
  FileSource() = default;
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  Status open(const char* path);
  Status read(std::span<uint8_t> bytes) override;
  Status check_end() override;

 private:
  Status read_some(std::span<uint8_t> bytes, size_t* count);

  FileOps& ops_ = system_file_ops();
  int file_ = -1;
};

class CallbackSink : public ByteSink {
 public:
  CallbackSink(kvc_write_fn write, void* user) : write_(write), user_(user) {}
  Status write(std::span<const uint8_t> bytes) override;

 private:
  const kvc_write_fn write_;
  void* const user_;
};

class CallbackSource : public ByteSource {
 public:
  CallbackSource(kvc_read_fn read, void* user) : read_(read), user_(user) {}
  Status read(std::span<uint8_t> bytes) override;

 private:
  const kvc_read_fn read_;
  void* const user_;
};

}  // namespace kvc

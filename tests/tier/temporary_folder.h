// A temporary folder, which is removed with its contents.
#pragma once

#include <filesystem>
#include <string>

#include "../support/temporary_folder.h"

namespace kvt {

class TemporaryFolder {
 public:
  enum Where { kMemory, kDisk };  // kMemory: a file system in memory if there is one, which is faster

  explicit TemporaryFolder(Where where = kMemory) {
    if (where == kMemory) path_ = make_folder("/dev/shm", "kvc_tier_");
    if (path_.empty()) path_ = make_temporary_folder("kvc_tier_");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  const std::string &path() const { return path_; }

  // Regular files, at any depth.
  int64_t files(const std::string &below = "") const {
    int64_t n = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path_ + "/" + below))
      n += entry.is_regular_file();
    return n;
  }
  // Bytes of all object files.
  int64_t object_bytes() const {
    int64_t n = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file() && entry.path().filename() != "kvcache-tier")
        n += static_cast<int64_t>(entry.file_size());
    }
    return n;
  }

 private:
  std::string path_;
};

}  // namespace kvt

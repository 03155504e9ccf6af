// A new folder with a random name, below the system's folder for temporary files or below another folder.
#pragma once

#include <filesystem>
#include <random>
#include <string>

namespace kvt {

// Returns its path, or an empty string if `parent` allows no new folder.
inline std::string make_folder(const std::filesystem::path &parent, const std::string &prefix) {
  for (std::random_device random;;) {
    const std::filesystem::path path = parent / (prefix + std::to_string(random()));
    std::error_code error;
    if (std::filesystem::create_directory(path, error)) return path.string();
    if (error) return "";  // otherwise the name exists
  }
}

inline std::string make_temporary_folder(const std::string &prefix) {
  return make_folder(std::filesystem::temp_directory_path(), prefix);
}

}  // namespace kvt

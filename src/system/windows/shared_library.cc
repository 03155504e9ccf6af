#include "system/shared_library.h"

#include <windows.h>

#include <algorithm>

#include "system/windows/wide.h"

namespace kvc {
namespace {

// A path with a drive or with a share, such as C:\folder\file or \\server\share\file.
bool is_absolute(const std::wstring& path) {
  return path.size() > 2 && ((path[1] == L':' && path[2] == L'\\') || (path[0] == L'\\' && path[1] == L'\\'));
}

}  // namespace

std::string library_file_name(const char* name) { return std::string(name) + ".dll"; }

void* open_library(const std::string& path, std::string* reason) {
  std::wstring wide = to_wide(path);
  std::replace(wide.begin(), wide.end(), L'/', L'\\');
  // The folder of the file is searched for the libraries that the file needs. The working folder is never searched for
  // a name without a folder, because anyone may have put a file there.
  const DWORD places = LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | (is_absolute(wide) ? LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR : 0);
  if (HMODULE library = LoadLibraryExW(wide.c_str(), nullptr, places)) return library;
  *reason = path + ": error " + std::to_string(GetLastError()) + " of LoadLibrary";
  return nullptr;
}

void* find_symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace kvc

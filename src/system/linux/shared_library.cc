#include "system/shared_library.h"

#include <dlfcn.h>

namespace kvc {

std::string library_file_name(const char* name) { return std::string("lib") + name + ".so"; }

void* open_library(const std::string& path, std::string* reason) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const char* const why = dlerror();
  *reason = why != nullptr ? why : path;
  return nullptr;
}

void* find_symbol(void* library, const char* name) noexcept { return dlsym(library, name); }

}  // namespace kvc

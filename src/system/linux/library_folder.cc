#include "system/library_folder.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace kvc {
namespace {

char folder[PATH_MAX];  // empty: unknown

// Reads the path of the program's own file, for a library that is linked into the program. The loader has no name for
// this file, and dladdr returns argv[0], which the parent process chose.
bool program_path(char* path) noexcept {
  const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  return true;
}

// Runs when the library is loaded. Nothing runs at exit.
[[gnu::constructor]] void find_folder() noexcept {
  Dl_info info = {};
  void* entry = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&library_folder), &info, &entry, RTLD_DL_LINKMAP) == 0) return;
  char path[PATH_MAX] = {};
  const char* const name = static_cast<const link_map*>(entry)->l_name;
  if (*name != '\0') {
    strncpy(path, name, PATH_MAX - 1);
  } else if (!program_path(path)) {
    return;
  }
  // Symbolic links in the path of the folder are resolved, but a link of the file itself is not. A package may use
  // links to collect files from several places in one folder. Then the plug-ins are beside the link.
  char* const last = strrchr(path, '/');
  if (last == nullptr) return;
  *(last == path ? last + 1 : last) = '\0';
  char absolute[PATH_MAX];
  if (realpath(path, absolute) == nullptr || strlen(absolute) + 2 > sizeof folder) return;
  strcpy(folder, absolute);
  if (strcmp(folder, "/") != 0) strcat(folder, "/");
}

}  // namespace

const char* library_folder() noexcept { return folder[0] == '/' ? folder : nullptr; }

}  // namespace kvc

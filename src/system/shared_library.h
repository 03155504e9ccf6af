// Libraries that are loaded at run time. They stay loaded until the process ends. Thread safety: any thread.
#pragma once

#include <string>

namespace kvc {

// The file name of a library of this project, such as libkvcache_cuda.so for "kvcache_cuda".
std::string library_file_name(const char* name);

// Loads a library. Fails if a symbol that the library needs is missing. Other libraries do not see its symbols. path:
// in UTF-8; if it has no folder, the system searches its usual folders. On failure, returns nullptr and sets *reason.
void* open_library(const std::string& path, std::string* reason);

// Returns the address of a symbol, or nullptr.
void* find_symbol(void* library, const char* name) noexcept;

}  // namespace kvc

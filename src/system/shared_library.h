// Libraries that are loaded at run time. They stay loaded until the process ends. Thread safety: any thread.
#pragma once

#include <string>

namespace kvc {

// The file name of a library of this project, such as libkvcache_cuda.so for "kvcache_cuda".
std::string library_file_name(const char* name);

// Loads a library with all its symbols, for this library alone. path: in UTF-8; without a folder, the system searches
// its own places. Returns nullptr and the reason on failure.
void* open_library(const std::string& path, std::string* reason);

// Returns the address of a symbol, or nullptr.
void* find_symbol(void* library, const char* name) noexcept;

}  // namespace kvc

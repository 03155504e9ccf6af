// Environment variables that name files. Thread safety: as for getenv.
#pragma once

#include <string>

namespace kvc {

// Returns the value of a variable in UTF-8, or an empty string if the variable is not set. In a set-uid process, the
// environment comes from a caller with fewer rights, so the result is always empty. Throws std::bad_alloc.
std::string trusted_variable(const char* name);

}  // namespace kvc

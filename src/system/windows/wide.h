// Text between UTF-8, which the library uses, and UTF-16, which the system's functions use. Thread safety: any thread.
#pragma once

#include <string>

namespace kvc {

// Text that is not valid becomes text with replacement characters. Both throw std::bad_alloc.
std::wstring to_wide(const std::string& utf8);
std::string to_utf8(const std::wstring& wide);

}  // namespace kvc

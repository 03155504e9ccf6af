#include "system/environment.h"

#include <windows.h>

#include "system/windows/wide.h"

namespace kvc {

std::string trusted_variable(const char* name) {
  const std::wstring wide_name = to_wide(name);
  std::wstring value(GetEnvironmentVariableW(wide_name.c_str(), nullptr, 0), L'\0');  // with the final zero
  const DWORD length = GetEnvironmentVariableW(wide_name.c_str(), value.data(), static_cast<DWORD>(value.size()));
  if (length >= value.size()) return "";  // no such variable, or another thread has made it longer
  value.resize(length);
  return to_utf8(value);
}

}  // namespace kvc

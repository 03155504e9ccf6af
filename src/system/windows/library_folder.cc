#include "system/library_folder.h"

#include <string.h>
#include <windows.h>

namespace kvc {
namespace {

constexpr int kMaxBytes = 4 * MAX_PATH + 2;
char folder[kMaxBytes];  // in UTF-8; empty: unknown

// Runs when the library is loaded, before any thread of the library runs.
[[gnu::constructor]] void find_folder() noexcept {
  HMODULE module = nullptr;
  // The library stays loaded until the process ends, because its threads must survive a FreeLibrary.
  constexpr DWORD kHow = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
  if (!GetModuleHandleExW(kHow, reinterpret_cast<LPCWSTR>(&library_folder), &module)) return;
  wchar_t path[MAX_PATH * 2];
  const DWORD length = GetModuleFileNameW(module, path, MAX_PATH * 2);
  if (length == 0 || length >= MAX_PATH * 2) return;
  wchar_t* const last = wcsrchr(path, L'\\');
  if (last == nullptr) return;
  last[1] = L'\0';
  if (WideCharToMultiByte(CP_UTF8, 0, path, -1, folder, kMaxBytes, nullptr, nullptr) == 0) folder[0] = '\0';
}

}  // namespace

const char* library_folder() noexcept { return folder[0] != '\0' ? folder : nullptr; }

}  // namespace kvc

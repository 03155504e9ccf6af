#include "system/host_memory.h"

#include <windows.h>

namespace kvc {

int64_t host_memory_bytes() noexcept {
  MEMORYSTATUSEX status = {};
  status.dwLength = sizeof status;
  if (!GlobalMemoryStatusEx(&status) || status.ullTotalPageFile == 0) return INT64_MAX;
  return static_cast<int64_t>(status.ullTotalPageFile);  // the limit of the system: physical memory and page files
}

}  // namespace kvc

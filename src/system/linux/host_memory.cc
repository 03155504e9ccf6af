#include "system/host_memory.h"

#include <sys/sysinfo.h>

#include "base/checked.h"

namespace kvc {

int64_t host_memory_bytes() noexcept {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return INT64_MAX;
  int64_t units = 0, bytes = 0;
  const bool fits = checked_add(static_cast<int64_t>(info.totalram), static_cast<int64_t>(info.totalswap), &units) &&
                    checked_mul(units, static_cast<int64_t>(info.mem_unit), &bytes);
  return fits && bytes > 0 ? bytes : INT64_MAX;
}

}  // namespace kvc

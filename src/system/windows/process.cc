#include "system/process.h"

#include <windows.h>

namespace kvc {

int64_t process_id() noexcept { return GetCurrentProcessId(); }

}  // namespace kvc

#include "system/process.h"

#include <unistd.h>

namespace kvc {

int64_t process_id() noexcept { return ::getpid(); }

}  // namespace kvc

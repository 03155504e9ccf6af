// The number of this process. Thread safety: any thread.
#pragma once

#include <cstdint>

namespace kvc {

int64_t process_id() noexcept;

}  // namespace kvc

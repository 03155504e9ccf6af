// How much memory the host has: physical memory and swap.
#pragma once

#include <cstdint>

namespace kvc {

// Returns the number of bytes, or INT64_MAX if the system does not report it.
int64_t host_memory_bytes() noexcept;

}  // namespace kvc

// How much memory the host has: physical memory and swap.
#pragma once

#include <cstdint>

namespace kvc {

// In bytes; INT64_MAX where the system does not say.
int64_t host_memory_bytes() noexcept;

}  // namespace kvc

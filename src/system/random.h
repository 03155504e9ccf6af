// Random bytes that no other process can guess. Thread safety: any thread.
#pragma once

#include <cstddef>

namespace kvc {

// bytes: at most 256. Returns false, with the reason in errno, if the system has no random bytes.
bool fill_random(void* data, size_t bytes) noexcept;

}  // namespace kvc

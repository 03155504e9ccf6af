// Large areas of zeroed memory. The system provides memory for a part of the area when that part is first used.
// Thread safety: any thread.
#pragma once

#include <cstddef>

namespace kvc {

// Returns nullptr, with the reason in errno, if the system refuses the area.
void* map_memory(size_t bytes) noexcept;

// Releases an area of map_memory. bytes: its size.
void unmap_memory(void* memory, size_t bytes) noexcept;

}  // namespace kvc

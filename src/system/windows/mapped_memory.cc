#include "system/mapped_memory.h"

#include <windows.h>

#include <cerrno>

namespace kvc {

// The system counts all of the area against its limit (memory and page files), but provides memory only when it is
// used.
void* map_memory(size_t bytes) noexcept {
  void* memory = VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  if (memory == nullptr) errno = ENOMEM;
  return memory;
}

void unmap_memory(void* memory, size_t) noexcept { VirtualFree(memory, 0, MEM_RELEASE); }

}  // namespace kvc

#include "system/mapped_memory.h"

#include <sys/mman.h>

namespace kvc {

void* map_memory(size_t bytes) noexcept {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a failure only makes the memory slower
  return memory;
}

void unmap_memory(void* memory, size_t bytes) noexcept { ::munmap(memory, bytes); }

}  // namespace kvc

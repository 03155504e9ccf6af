// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cpu/system/pages.h"

namespace kvc::kernels {

int64_t page_bytes() { return sysconf(_SC_PAGESIZE); }

unsigned char* map_pages(int64_t bytes, int64_t alignment, bool huge) {
  const int64_t mapped = bytes + alignment - page_bytes();
  void* const map =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return nullptr;
  // Only [base, base + bytes) stays mapped. base is aligned.
  const int64_t before =
      static_cast<int64_t>(-reinterpret_cast<uintptr_t>(map) & static_cast<uintptr_t>(alignment - 1));
  const int64_t after = mapped - before - bytes;
  unsigned char* const base = static_cast<unsigned char*>(map) + before;
  if (before > 0) munmap(map, static_cast<size_t>(before));
  if (after > 0) munmap(base + bytes, static_cast<size_t>(after));
#if defined(MADV_HUGEPAGE)
  // If the system refuses it, calls are only slower.
  if (huge) madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#endif
  return base;
}

void unmap_pages(void* memory, int64_t bytes) { munmap(memory, static_cast<size_t>(bytes)); }

}  // namespace kvc::kernels

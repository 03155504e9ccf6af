// The hint for large pages is ignored: on Windows they need a privilege that few users have.
// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "kernels/cpu/system/pages.h"

namespace kvc::kernels {

int64_t page_bytes() {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  return info.dwPageSize;
}

// Reserves addresses for the memory and its alignment, and gets memory for the aligned part only.
unsigned char* map_pages(int64_t bytes, int64_t alignment, bool) {
  const int64_t reserved = bytes + alignment - page_bytes();
  void* const area = VirtualAlloc(nullptr, static_cast<size_t>(reserved), MEM_RESERVE, PAGE_READWRITE);
  if (area == nullptr) return nullptr;
  const int64_t before =
      static_cast<int64_t>(-reinterpret_cast<uintptr_t>(area) & static_cast<uintptr_t>(alignment - 1));
  void* const memory =
      VirtualAlloc(static_cast<unsigned char*>(area) + before, static_cast<size_t>(bytes), MEM_COMMIT, PAGE_READWRITE);
  if (memory == nullptr) VirtualFree(area, 0, MEM_RELEASE);
  return static_cast<unsigned char*>(memory);
}

void unmap_pages(void* memory, int64_t) {
  MEMORY_BASIC_INFORMATION info;
  if (VirtualQuery(memory, &info, sizeof info) != 0) VirtualFree(info.AllocationBase, 0, MEM_RELEASE);
}

}  // namespace kvc::kernels

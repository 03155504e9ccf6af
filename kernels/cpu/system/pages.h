// Memory in whole pages of the system. Thread safety: any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

namespace kvc::kernels {

int64_t page_bytes();

// Returns zeroed memory, or nullptr if the system refuses it.
//   bytes      a multiple of page_bytes()
//   alignment  a power of two, at least page_bytes()
//   huge       a hint to use large pages
unsigned char* map_pages(int64_t bytes, int64_t alignment, bool huge);

// Releases memory of map_pages. bytes: its size.
void unmap_pages(void* memory, int64_t bytes);

}  // namespace kvc::kernels

// Counts malloc and related functions, mmap and pthread_create of this process, and makes them fail.
#pragma once

#include <cstdint>

namespace kvt {

// Counts since the last call of count_from_now, in all threads.
struct Counts {
  int64_t allocations;  // malloc, calloc, realloc, aligned ones, mmap, mremap, sbrk
  int64_t threads;      // pthread_create
};
void count_from_now();
Counts counts();

// Blocks that are allocated and not freed, since the process began.
int64_t live_blocks();
// Bytes mapped by mmap and not unmapped (a mapping may be trimmed by several munmaps).
int64_t live_mapped_bytes();

// The n-th allocation from now on (1 = the next one) fails once; 0 = none. It counts allocations of the heap, mmap and
// mremap.
void fail_allocation(int64_t n);
// Whether pthread_create fails from now on.
void fail_threads(bool fail);
// Whether the requested failure has happened.
bool failed();

}  // namespace kvt

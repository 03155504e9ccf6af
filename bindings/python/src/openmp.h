// Uses the threads of the OpenMP runtime that the process has loaded (for example that of PyTorch) as the thread pool
// of a context.
#pragma once

#include <cstdint>

#include "kvcache.h"

namespace kvcpy {

// A kvc_parallel_for_fn. `user` is not used. The first call of find_openmp() must have returned true.
void openmp_parallel_for(void* user, int64_t n, kvc_parallel_item_fn item, void* arg);

// Finds the runtime, and loads none. Returns whether there is one. Thread-safe.
bool find_openmp();

// Returns the number of threads of a parallel region that the calling thread starts (omp_get_max_threads).
int32_t openmp_threads();

}  // namespace kvcpy

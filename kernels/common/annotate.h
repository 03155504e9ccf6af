// Marks functions that the host and, later, CUDA compile from one source.
// Every such function is static: a header included by translation units with different instruction sets must not leave
// a weak copy, since the linker would keep the one that an older CPU cannot run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define KVC_HOST_DEVICE __host__ __device__ static inline
#else
#define KVC_HOST_DEVICE [[maybe_unused]] static inline
#endif

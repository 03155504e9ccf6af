// KVC_HOST_DEVICE marks a function that is compiled for the host and, by nvcc, also for the device. Such a function is
// static, because source files that are compiled for different instruction sets include it. If it were a weak symbol,
// the linker would keep the function of only one source file, and perhaps an older CPU cannot run that one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define KVC_HOST_DEVICE __host__ __device__ static inline
#else
#define KVC_HOST_DEVICE [[maybe_unused]] static inline
#endif

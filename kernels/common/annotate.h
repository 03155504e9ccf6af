// KVC_HOST_DEVICE marks a function that is compiled for the host and, by nvcc, also for the device. Such a function is
// always static. Translation units with different instruction sets include these headers. If the function were a weak
// symbol, the linker could keep a copy that an older CPU cannot run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define KVC_HOST_DEVICE __host__ __device__ static inline
#else
#define KVC_HOST_DEVICE [[maybe_unused]] static inline
#endif

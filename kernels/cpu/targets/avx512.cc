// The avx512 target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512
#define KVC_TARGET_NAME "avx512"
#define KVC_TARGET_TABLE kAvx512Implementation

#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/attend/implementation.inl.h"

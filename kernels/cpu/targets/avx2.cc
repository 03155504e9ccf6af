// The avx2 target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx2
#define KVC_TARGET_NAME "avx2"
#define KVC_TARGET_TABLE kAvx2Implementation

#include "kernels/cpu/simd/avx2.h"

#include "kernels/cpu/attend/implementation.inl.h"

// The avx512_vbmi target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_vbmi
#define KVC_TARGET_NAME "avx512_vbmi"
#define KVC_TARGET_TABLE kAvx512VbmiImplementation
#define KVC_TARGET_E4M3 TabledE4m3
#define KVC_TARGET_BASE kAvx512Implementation
#include "kernels/cpu/simd/avx512_vbmi.h"

#include "kernels/cpu/attend/implementation.inl.h"

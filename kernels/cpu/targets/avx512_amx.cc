// The avx512_amx target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_amx
#define KVC_TARGET_NAME "avx512_amx"
#define KVC_TARGET_TABLE kAvx512AmxImplementation
#define KVC_TARGET_BF16 BfTiles
#define KVC_TARGET_BASE kAvx512VbmiImplementation
#include "kernels/cpu/simd/avx512_amx.h"

#include "kernels/cpu/attend/implementation.inl.h"

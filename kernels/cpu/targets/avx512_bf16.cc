// The avx512_bf16 target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_bf16
#define KVC_TARGET_NAME "avx512_bf16"
#define KVC_TARGET_TABLE kAvx512Bf16Implementation
#define KVC_TARGET_BF16 BfDots
#define KVC_TARGET_BYTES ByteDots
#define KVC_TARGET_BASE kAvx512VbmiImplementation
#include "kernels/cpu/simd/avx512_bf16.h"

#include "kernels/cpu/attend/implementation.inl.h"

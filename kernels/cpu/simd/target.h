// Every SIMD header includes this file, which defines the macros that mark functions, and the constants of
// approximations. Each target has one translation unit, which sets KVC_TARGET to the target's name and is compiled with
// its own flags. All functions of the unit must be static or lie in kvc::kernels::KVC_TARGET. Otherwise the linker
// could merge them with functions of other targets. tests/kernels/symbols_test.cmake checks the object files.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>
#include <string.h>

#ifndef KVC_TARGET
#error "set KVC_TARGET before including a SIMD header"
#endif

#define KVC_INLINE [[maybe_unused]] static inline __attribute__((always_inline))
#define KVC_INLINE_MEMBER [[maybe_unused]] static inline __attribute__((always_inline))
#define KVC_UNROLL _Pragma("GCC unroll 32")

#define KVC_NEG_INF (-__builtin_inff())
#define KVC_LOWEST (-__FLT_MAX__)

// 2^x for x in [-0.5, 0.5] is 1 + x * (c0 + x * (c1 + ...)). The relative error is at most 9.2e-8, and 0 at x = 0.
#define KVC_EXP2_C0 0x1.62e42ap-1f
#define KVC_EXP2_C1 0x1.ebf9bcp-3f
#define KVC_EXP2_C2 0x1.c6b752p-5f
#define KVC_EXP2_C3 0x1.3cea88p-7f
#define KVC_EXP2_C4 0x1.5bba14p-10f

// tanh(x) for |x| < 0.625 is x + x^3 * (c0 + x^2 * (c1 + ...)). The relative error is at most 4e-8 before rounding.
#define KVC_TANH_C0 -0x1.555532p-2f
#define KVC_TANH_C1 0x1.1106d6p-3f
#define KVC_TANH_C2 -0x1.b83322p-5f
#define KVC_TANH_C3 0x1.51f0f0p-6f
#define KVC_TANH_C4 -0x1.7507acp-8f

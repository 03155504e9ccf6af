// The neon target. NEON needs no flags: every aarch64 CPU has it.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET neon
#define KVC_TARGET_NAME "neon"
#define KVC_TARGET_TABLE kNeonImplementation

#include "kernels/cpu/simd/neon.h"

#include "kernels/cpu/attend/implementation.inl.h"

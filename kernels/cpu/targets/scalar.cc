// The scalar target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET scalar
#define KVC_TARGET_NAME "scalar"
#define KVC_TARGET_TABLE kScalarImplementation

#include "kernels/cpu/simd/scalar.h"

#include "kernels/cpu/attend/implementation.inl.h"

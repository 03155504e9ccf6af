// The avx512 target. Compiled with the flags that kernels/CMakeLists.txt gives this file alone.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512

#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/attend/formats.h"

namespace kvc::kernels {
namespace {

constexpr AttendFormats kFormats = avx512::converting_formats();

}  // namespace

constinit const Implementation kAvx512Implementation = avx512::implementation_of("avx512", nullptr, &kFormats);

}  // namespace kvc::kernels

// Defines the SIMD target neon. This file needs no compiler flags of its own, because every aarch64 CPU has NEON.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET neon

#include "kernels/cpu/simd/neon.h"

#include "kernels/cpu/attend/formats.h"

namespace kvc::kernels {
namespace {

constexpr AttendFormats kFormats = neon::converting_formats();

}  // namespace

constinit const Implementation kNeonImplementation = neon::implementation_of("neon", nullptr, &kFormats);

}  // namespace kvc::kernels

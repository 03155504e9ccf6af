// Defines the SIMD target scalar. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET scalar

#include "kernels/cpu/simd/scalar.h"

#include "kernels/cpu/attend/formats.h"

namespace kvc::kernels {
namespace {

constexpr AttendFormats kFormats = scalar::converting_formats();

}  // namespace

constinit const Implementation kScalarImplementation = scalar::implementation_of("scalar", nullptr, &kFormats);

}  // namespace kvc::kernels

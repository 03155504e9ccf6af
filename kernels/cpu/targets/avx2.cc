// Defines the SIMD target avx2. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx2

#include "kernels/cpu/simd/avx2.h"

#include "kernels/cpu/attend/formats.h"
#include "kernels/cpu/simd/avx2_nibbles.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  AttendFormats formats = avx2::converting_formats();
  avx2::add_nibbles<avx2::TabledNibbles, avx2::ScaledNibbles>(&formats);
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx2Implementation = avx2::implementation_of("avx2", nullptr, &kFormats);

}  // namespace kvc::kernels

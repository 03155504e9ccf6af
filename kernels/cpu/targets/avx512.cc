// Defines the SIMD target avx512. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512

#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/attend/formats.h"
#include "kernels/cpu/simd/avx512_nibbles.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  AttendFormats formats = avx512::converting_formats();
  avx512::add_nibbles<avx512::TabledNibbles, avx512::ScaledNibbles>(&formats);
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx512Implementation = avx512::implementation_of("avx512", nullptr, &kFormats);

}  // namespace kvc::kernels

// Defines the SIMD target avx512_vbmi. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_vbmi

#include "kernels/cpu/simd/avx512_vbmi.h"

#include "kernels/cpu/attend/decode_formats.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  using namespace avx512_vbmi;
  AttendFormats formats;
  for (auto& of_q : formats.of) of_q[static_cast<int>(Type::kE4m3)] = decode_kernel<TabledE4m3>();
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx512VbmiImplementation =
    avx512_vbmi::implementation_of("avx512_vbmi", &kAvx512Implementation, &kFormats);

}  // namespace kvc::kernels

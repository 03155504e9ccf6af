// Defines the SIMD target avx512_amx. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_amx

#include "kernels/cpu/simd/avx512_amx.h"

#include "kernels/cpu/attend/formats.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  using namespace avx512_amx;
  AttendFormats formats;
  formats.of[static_cast<int>(Type::kBf16)][static_cast<int>(Type::kBf16)] = panel_kernel<BfTiles>();
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx512AmxImplementation =
    avx512_amx::implementation_of("avx512_amx", &kAvx512VbmiImplementation, &kFormats);

}  // namespace kvc::kernels

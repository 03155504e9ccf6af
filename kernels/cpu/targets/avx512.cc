// The avx512 target. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512

#include "kernels/cpu/simd/avx512.h"

#include "kernels/cpu/attend/formats.h"
#include "kernels/cpu/simd/avx512_nibbles.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  using namespace avx512;
  AttendFormats formats = converting_formats();
  for (auto& of_q : formats.of) {
    AttendFormat& nibbles = of_q[static_cast<int>(Type::kU4)];
    nibbles.decode = decode_kernel<TabledNibbles>().decode;
    nibbles.decode_rows = TabledNibbles::kDecodeRows;
    AttendFormat& floats = of_q[static_cast<int>(Type::kE2m1)];
    floats.decode = decode_kernel<ScaledNibbles>().decode;
    floats.decode_rows = ScaledNibbles::kDecodeRows;
  }
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx512Implementation = avx512::implementation_of("avx512", nullptr, &kFormats);

}  // namespace kvc::kernels

// Defines the SIMD target avx512_bf16. kernels/CMakeLists.txt gives this file its own compiler flags.
// SPDX-License-Identifier: Apache-2.0
#define KVC_TARGET avx512_bf16

#include "kernels/cpu/simd/avx512_bf16.h"

#include "kernels/cpu/attend/formats.h"

namespace kvc::kernels {
namespace {

consteval AttendFormats make_formats() {
  using namespace avx512_bf16;
  AttendFormats formats;
  auto& of_bf16 = formats.of[static_cast<int>(Type::kBf16)];
  of_bf16[static_cast<int>(Type::kBf16)] = all_kernels<BfDots>();
  of_bf16[static_cast<int>(Type::kE4m3)] = decode_kernel<ByteDots<E4m3>>();
  of_bf16[static_cast<int>(Type::kI8)] = decode_kernel<ByteDots<I8>>();
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kAvx512Bf16Implementation =
    avx512_bf16::implementation_of("avx512_bf16", &kAvx512VbmiImplementation, &kFormats);

}  // namespace kvc::kernels

// Which SIMD targets this machine can run: what the CPU has and the operating system saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc::kernels {

struct CpuFeatures {
  bool avx2;            // AVX2, FMA, F16C
  bool avx512;          // F, BW, DQ, VL, and the above
  bool avx512_bf16;     // and BF16
  bool fast_bf16_dots;  // vdpbf16ps does more multiply-adds a cycle than vfmadd
};

CpuFeatures detect_cpu_features();

}  // namespace kvc::kernels

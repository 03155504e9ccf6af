// Which SIMD targets this machine can run: what the CPU has and the operating system saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc::kernels {

struct CpuFeatures {
  bool avx2;            // AVX2, FMA, F16C
  bool avx512;          // F, BW, DQ, VL, and the above
  bool avx512_vbmi;     // and VBMI
  bool avx512_bf16;     // and BF16
  bool fast_bf16_dots;  // vdpbf16ps does more multiply-adds a cycle than vfmadd
  bool amx_bf16;        // AMX-TILE and AMX-BF16, and avx512_bf16; a process must ask the system before it uses them
};

CpuFeatures detect_cpu_features();

// Asks the system to let this process use AMX's tiles, for its threads, those to come too: false if it refuses (a
// thread's alternate signal stack may be too small for their state). May be called again.
bool request_amx();

}  // namespace kvc::kernels

// Which SIMD targets this machine can run: what the CPU has and the operating system saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc::kernels {

struct CpuFeatures {
  bool avx2;            // AVX2, FMA, F16C
  bool avx512;          // F, BW, DQ, VL, and the above
  bool avx512_vbmi;     // with VBMI
  bool avx512_bf16;     // with BF16
  bool fast_bf16_dots;  // vdpbf16ps does more multiply-adds a cycle than vfmadd
  bool amx_bf16;        // AMX-TILE and AMX-BF16, and avx512_bf16. A process must request the tiles before it uses them
};

CpuFeatures detect_cpu_features();

// Requests AMX tiles from the system, for all threads of this process, also later ones. Returns false if the system
// refuses; the alternate signal stack of a thread may be too small for their state. It may be called again.
bool request_amx();

}  // namespace kvc::kernels

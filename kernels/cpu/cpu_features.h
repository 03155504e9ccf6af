// Finds which SIMD targets this machine can run. That depends on the instructions of the CPU, and on the registers that
// the operating system saves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvc::kernels {

struct CpuFeatures {
  bool avx2;            // AVX2, FMA, F16C
  bool avx512;          // AVX-512 F, BW, DQ, VL, and avx2
  bool avx512_vbmi;     // AVX-512 VBMI, and avx512
  bool avx512_bf16;     // AVX-512 BF16, and avx512_vbmi
  bool fast_bf16_dots;  // vdpbf16ps does more multiply-adds a cycle than vfmadd
  bool amx_bf16;        // AMX-TILE and AMX-BF16, and avx512_bf16. A process must request tiles before it uses them
};

CpuFeatures detect_cpu_features();

// Requests AMX tiles from the system, for all present and later threads of this process. Returns false if the system
// refuses. One reason is that a thread's alternate signal stack is too small for the tiles. Repeated calls are
// allowed.
bool request_amx();

}  // namespace kvc::kernels

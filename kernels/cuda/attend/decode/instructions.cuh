// Instructions that only attention of few rows over K and V of 8 bits, or of 4-bit floats, uses. As in
// attend/mma/instructions.cuh, they have an emulation for compilers other than nvcc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cuda/attend/common/pairs.cuh"
#include "kernels/cuda/attend/mma/instructions.cuh"

namespace kvc::kernels::cuda {

// Warp: transposes an 8 x 8 matrix of 16-bit elements. A lane has two neighbouring elements of row lane / 4, before and
// after (attend/mma/layout.h).
#if defined(__CUDACC__)
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}
#else
using cuda_emulation::transpose;
#endif

// Returns the bits of `a` where `mask` has ones, and the bits of `b` elsewhere. The compiler does not see through this
// instruction, because it would replace it by two.
#if defined(__CUDACC__)
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t selected;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(selected) : "r"(mask), "r"(a), "r"(b));
  return selected;
}
#else
inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }
#endif

// Converts four elements of float8_e4m3fn to two pairs of float16, exactly: bytes 0 and 1, and bytes 2 and 3. NaN stays
// NaN. GPUs before compute capability 8.9 have no instruction for this. For them, dequantise_pair converts NaN to 480.
// Only 480 and -480 become infinite when they are multiplied by 144. Infinity times 0 is NaN, which is added to the
// element.
__device__ __forceinline__ void pairs_of_e4m3(uint32_t four, uint32_t* low, uint32_t* high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %2;\ncvt.rn.f16x2.e4m3x2 %0, l;\ncvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(*low), "=r"(*high)
      : "r"(four));
#else
  for (int i = 0; i < 2; ++i) {
    const uint32_t pair = dequantise_pair(F16{}, Type::kE4m3, spread(four, i), false);
    const uint32_t large = multiply_add(F16{}, pair, 0x58805880u, 0x80008000u);
    *(i == 0 ? low : high) = multiply_add(F16{}, large, 0u, pair);
  }
#endif
}

}  // namespace kvc::kernels::cuda

// Applies the Hadamard rotation of uint4 rows (kernels/common/hadamard.h; this is not RoPE), stores rows of 4-bit
// elements, and converts float4 to float32. All SIMD targets share this code, so they store the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvc::kernels {

// spread_row applies the Hadamard rotation to row[0, n), as uint4 stores it. gather_row undoes the rotation. block: as
// rotation_block returns it (kernels/common/hadamard.h).
void spread_row(float* row, int32_t n, int32_t block);
void gather_row(float* row, int32_t n, int32_t block);

// Stores a rotated row of n elements. n is a multiple of 4. Returns the scale to store (kernels/common/scales.h).
float quantise_nibbles(const float* row, int32_t n, unsigned char* target);

// Stores a row of float4, and the scales of its blocks. n: the number of elements, a multiple of 16.
void quantise_blocks(const float* row, int32_t n, float head_scale, unsigned char* target);

// Stores n elements of float4 as row / scale. n: a multiple of 4.
void quantise_float4(const float* row, int32_t n, float scale, unsigned char* target);

// Loads the n elements of a row of float4, and multiplies them by the scales of their blocks.
void dequantise_blocks(const unsigned char* elements, const unsigned char* scales, int32_t n, float* row);

}  // namespace kvc::kernels

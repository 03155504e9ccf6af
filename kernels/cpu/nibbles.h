// Rows of 4 bits outside of the decode kernel: one copy for all SIMD targets, so all store the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvc::kernels {

// Rotates row[0, n) as it is stored, and back (kernels/common/hadamard.h).
void spread_row(float* row, int32_t n, int32_t block);
void gather_row(float* row, int32_t n, int32_t block);

// Stores a rotated row of n elements, an even number. Returns the scale to store (kernels/common/scales.h).
float quantise_nibbles(const float* row, int32_t n, unsigned char* target);

// Stores a row of float4: n elements, a multiple of 16, and the scales of their blocks (store_blocks).
void quantise_blocks(const float* row, int32_t n, float head_scale, unsigned char* target);

// The n elements of a row of float4, times the scales of their blocks.
void dequantise_blocks(const unsigned char* elements, const unsigned char* scales, int32_t n, float* row);

}  // namespace kvc::kernels

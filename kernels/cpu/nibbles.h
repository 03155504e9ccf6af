// Rows of uint4 outside of the loops over keys: one copy for all SIMD targets, so all store the same bits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvc::kernels {

// Rotates row[0, n) as it is stored, and back (kernels/common/hadamard.h).
void spread_row(float* row, int32_t n, int32_t block);
void gather_row(float* row, int32_t n, int32_t block);

// Stores a rotated row of n elements, an even number. Returns the scale to store (kernels/common/scales.h).
float quantise_nibbles(const float* row, int32_t n, unsigned char* target);

}  // namespace kvc::kernels

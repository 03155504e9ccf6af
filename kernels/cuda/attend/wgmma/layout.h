// How operands of Hopper's warpgroup products (wgmma) lie in shared memory, and which element of the result a thread
// holds. One place for the mapping: the kernel is written by it, the emulation of the instructions computes by it, and
// a test compares both with plain products. (PTX ISA, "Asynchronous warpgroup level matrix instructions".)
//
// D [64, N] += A [64, 16] B [16, N], by the four warps of a warpgroup; elements of A and B have 16 bits.
//   D   warp w has rows 16 w to 16 w + 15, and of them, for each 8 columns, a lane what it has of an mma.m16n8 result
//       (attend/mma/layout.h): register 4 j + i is element i of columns 8 j to 8 j + 7.
//   A in registers: what a lane has of an mma.m16n8k16 operand, of its warp's 16 rows.
//   In shared memory an operand is made of panels: rows of 64 elements, 128 bytes, in which the 8 chunks of 16 bytes
//   are exchanged by the row's number modulo 8 (`swizzled` with a pitch of 128), as TMA writes a box of 64
//   elements with a swizzle of 128 bytes. Panels begin at multiples of 1024, where the pattern of 8 rows does.
//   K-major (Q, K): a row of a panel is 64 dims (the product's depth) of a row of A, or column of B. 16 dims on are 32
//       bytes on within the panel; the next 64 are in the next panel. Groups of 8 rows are `stride` apart.
//   MN-major (V): a row of a panel is a key (the product's depth), and its 64 elements are columns of B. 8 keys on are
//       `stride` on, the next 64 columns `leading`.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kernels/cuda/attend/mma/layout.h"

namespace kvc::kernels::cuda {

constexpr int kWarpgroupThreads = 128, kWarpgroupRows = 64;
constexpr int32_t kPanelDims = 64, kPanelPitch = 128;         // elements and bytes of a panel's row
constexpr int32_t kPatternRows = 8, kPatternBytes = 8 * 128;  // of the swizzle

// A matrix descriptor, with a swizzle of 128 bytes. start: an address in shared memory; all three are multiples of 16,
// below 2^18.
KVC_HOST_DEVICE uint64_t matrix_descriptor(uint32_t start, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((start & 0x3ffffu) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | kSwizzle128 << 62;
}

// Of a K-major operand whose first row and dim are at `start`, in panels (`leading` is not read then: 1).
KVC_HOST_DEVICE uint64_t rows_descriptor(uint32_t start) { return matrix_descriptor(start, 16, kPatternBytes); }
// Of an MN-major operand whose first key and column are at `start`, with panels of so many keys.
KVC_HOST_DEVICE uint64_t columns_descriptor(uint32_t start, int32_t keys) {
  return matrix_descriptor(start, static_cast<uint32_t>(keys * kPanelPitch), kPatternBytes);
}

// Element `i` of a thread's results: register i.
KVC_HOST_DEVICE MatrixPlace place_in_result(int thread, int i) {
  const MatrixPlace place = place_in_c(thread % 32, i % 4);
  return {thread / 32 * kMmaRows + place.row, i / 4 * kMmaColumns + place.column};
}

}  // namespace kvc::kernels::cuda

// The layout in shared memory of the operands of Hopper's warpgroup products (wgmma), and which elements of the result
// a thread holds (PTX ISA, "Asynchronous warpgroup level matrix instructions"). The kernels and the emulation of the
// instructions in the tests use the functions below. A test compares the emulation with plain products.
//
// The four warps of a warpgroup compute D [64, N] += A [64, 16] B [16, N]. Elements of A and B have 16 bits.
//   D   Warp w has the rows 16 w to 16 w + 15. For each 8 columns, a lane holds the same elements as in a result
//       of mma.m16n8 (attend/mma/layout.h). Register 4 j + i is element i of the columns 8 j to 8 j + 7.
//   A   In registers, a lane holds the same elements as in operand A of mma.m16n8k16, for the 16 rows of its warp.
//
// An operand in shared memory consists of panels. A row of a panel has 64 elements, 128 bytes. Its 8 chunks of 16 bytes
// are permuted by the row's number modulo 8 (`swizzled` with a pitch of 128). TMA writes this order with a swizzle of
// 128 bytes. Panels begin at multiples of 1024 bytes, where the pattern of 8 rows begins. There are two layouts:
//   K-major (Q, K)   A row of a panel has 64 dims (the depth of the product) of a row of A, or of a column of B. The
//                    next 16 dims are 32 bytes later in the same panel, and the next 64 dims are in the next panel.
//                    Groups of 8 rows are `stride` bytes apart.
//   MN-major (V)     A row of a panel is a key (the depth of the product). Its 64 elements are columns of B. The next 8
//                    keys are `stride` bytes later, and the next 64 columns are `leading` bytes later.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/common/annotate.h"
#include "kernels/cuda/attend/mma/layout.h"

namespace kvc::kernels::cuda {

constexpr int kWarpgroupThreads = 128, kWarpgroupRows = 64;
constexpr int32_t kPanelDims = 64, kPanelPitch = 128;         // elements and bytes of a row of a panel
constexpr int32_t kPatternRows = 8, kPatternBytes = 8 * 128;  // the pattern of the swizzle

// A matrix descriptor with a swizzle of 128 bytes. start: an address in shared memory. The three arguments are
// multiples of 16 below 2^18.
KVC_HOST_DEVICE uint64_t matrix_descriptor(uint32_t start, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((start & 0x3ffffu) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | kSwizzle128 << 62;
}

// The descriptor of a K-major operand whose first row and dim are at `start`. The hardware ignores `leading` for this
// layout.
KVC_HOST_DEVICE uint64_t rows_descriptor(uint32_t start) { return matrix_descriptor(start, 16, kPatternBytes); }
// The descriptor of an MN-major operand whose first key and column are at `start`, in panels of `keys` keys.
KVC_HOST_DEVICE uint64_t columns_descriptor(uint32_t start, int32_t keys) {
  return matrix_descriptor(start, static_cast<uint32_t>(keys * kPanelPitch), kPatternBytes);
}

// The descriptor of an operand that lies `bytes` later. An address in shared memory never overflows into the next
// field.
KVC_HOST_DEVICE uint64_t later_operand(uint64_t descriptor, int32_t bytes) {
  const uint32_t low = static_cast<uint32_t>(descriptor) + static_cast<uint32_t>(bytes >> 4);
  return (descriptor & ~uint64_t{0xffffffffu}) | low;
}

// The place in the result of a thread's element i, which is its register i.
KVC_HOST_DEVICE MatrixPlace place_in_result(int thread, int i) {
  const MatrixPlace place = place_in_c(thread % 32, i % 4);
  return {thread / 32 * kMmaRows + place.row, i / 4 * kMmaColumns + place.column};
}

}  // namespace kvc::kernels::cuda
